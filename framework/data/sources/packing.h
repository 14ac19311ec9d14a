// Documents of a token file into rows of equal length. Reading the rows is tokens.h's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/sources/token_file.h"

namespace brim::data {

/// A run of a file's tokens.
struct TokenRun {
  int64_t first = 0;
  int64_t count = 0;

  bool operator==(const TokenRun&) const = default;
};

/// The documents of a file, cut into runs of at most `longest` ≥ 2 tokens. A document ends with the
/// token `end` or with the file. Where one is cut, the token before the cut begins the next run, so
/// that every token but a document's first follows another in exactly one run. Documents of a
/// single token, which have nothing to predict, are left out. Reads the whole file; throws
/// TokenFile::read()'s errors.
std::vector<TokenRun> find_documents(const TokenFile& file, int64_t end, int64_t longest);

/// Runs in rows.
class PackedRows {
 public:
  /// First fit: a run goes to the first row that has room for it, in the order of the runs.
  /// O(n log n). Each run fits into a row of `row_tokens`, below 2^31.
  static PackedRows first_fit(const std::vector<TokenRun>& runs, int64_t row_tokens);
  /// A row for each run.
  static PackedRows one_each(std::vector<TokenRun> runs);

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  /// In the order of the file.
  std::span<const TokenRun> row(int64_t index) const;

 private:
  std::vector<TokenRun> runs_;  // row by row
  std::vector<int64_t> ends_;   // by row: the end of its runs
};

}  // namespace brim::data
