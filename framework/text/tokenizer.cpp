#include "framework/text/tokenizer.h"

#include "framework/base/error.h"

namespace brim::text {

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encoder()->encode(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += bytes(id);
  return text;
}

void Tokenizer::check(int32_t id) const {
  if (id >= 0 && id < vocabulary()) return;
  throw Error(Exit::kData, "tokenizer '{}': expected token ids from 0 to {}, found {}", name(),
              vocabulary() - 1, id);
}

}  // namespace brim::text
