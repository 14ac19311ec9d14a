// `bytes`: each byte is its own id, 256 ends a document. It needs no file, takes any bytes, and has
// the smallest vocabulary and the longest texts.
#pragma once

#include "framework/text/tokenizer.h"

namespace brim::text {

class ByteTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocabulary() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  std::unique_ptr<Encoder> encoder() const override;
  std::string_view bytes(int32_t id) const override;
  size_t safe_cut(std::string_view text) const override { return text.size(); }
};

}  // namespace brim::text
