#include "framework/text/tokenizer.h"

#include "framework/base/error.h"
#include "framework/text/unicode.h"

namespace brim::text {

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  encoder()->encode(text, ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text, std::string_view where) const {
  const size_t good = well_formed_bytes(text);
  if (good < text.size()) {
    throw Error(Exit::kData, "{}: expected UTF-8, found the byte 0x{:02X} at byte {}", where,
                static_cast<uint8_t>(text[good]), good);
  }
  try {
    return encode(text);
  } catch (const Error& error) {
    throw Error(error.status(), "{}: {}", where, error.what());
  }
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
