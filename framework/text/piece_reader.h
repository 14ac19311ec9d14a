// Files of text, piece by piece: memory doesn't grow with the files. A file whose name ends in
// .jsonl or .jsonl.gz has a document on each line, {"text": "…"}; any other is a document as a
// whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/text/text_file.h"

namespace brim::text {

/// Whole lines of a .jsonl file, or a part of a document.
struct Piece {
  std::string text;  // UTF-8
  std::string name;  // of the file
  int64_t line = 0;  // of a .jsonl file: that of the first line, from 1; 0: plain text
  bool is_eval = false;
  bool ends_document = false;  // of plain text
};

/// Calls `take` with the text of each document of whole .jsonl lines. Throws Error(kData), naming
/// file and line, where one is no JSON object with a text.
void for_each_document(const Piece& lines, const std::function<void(std::string_view)>& take);

class PieceReader {
 public:
  /// See Tokenizer::safe_cut().
  using SafeCut = std::function<size_t(std::string_view)>;

  /// Text from byte `eval_from` of the file on, at the next beginning of a line, is for evaluation.
  PieceReader(std::string path, SafeCut safe_cut, int64_t eval_from);

  /// Pieces of about 1 MiB; more where text can't be cut, up to 16 MiB: then it is cut anywhere.
  /// Throws Error(kData) for bytes that aren't UTF-8, naming file and byte, and for lines of a
  /// .jsonl file that are over 64 MiB.
  std::optional<Piece> next();

 private:
  bool fill(size_t wanted);
  void check_utf8();
  size_t find_cut();
  std::optional<size_t> find_eval(size_t before) const;
  Piece take(size_t size, bool ends_document);

  std::string path_;
  SafeCut safe_cut_;
  int64_t eval_from_;
  bool is_lines_;
  TextFile file_;
  std::string buffer_;
  size_t checked_ = 0;  // bytes of the buffer that are UTF-8
  int64_t offset_ = 0;  // of the buffer in the file
  int64_t line_ = 1;
  bool at_end_ = false;
  bool is_eval_ = false;
  bool in_document_ = false;
};

}  // namespace brim::text
