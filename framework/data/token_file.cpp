#include "framework/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "framework/base/error.h"

namespace brim::data {
namespace {

static_assert(std::endian::native == std::endian::little, "values are taken as they lie");

// Tokens that are read and converted at a time, so that they stay in the first cache.
constexpr size_t kChunk = 4096;

std::span<uint8_t> as_bytes(std::span<int32_t> tokens) {
  return {reinterpret_cast<uint8_t*>(tokens.data()), tokens.size_bytes()};
}

/// Whether each value, taken as unsigned, is below `vocabulary`. Without a branch in the loop, so
/// that the compiler vectorises it.
bool all_below(std::span<const int32_t> values, uint32_t vocabulary) {
  uint32_t outside = 0;  // the highest bit tells
  for (const int32_t value : values) {
    const auto id = static_cast<uint32_t>(value);
    outside |= id | (vocabulary - 1 - id);
  }
  return outside >> 31 == 0;
}

}  // namespace

TokenFile::TokenFile(std::unique_ptr<ByteSource> bytes, TokenType type, int64_t vocabulary)
    : bytes_(std::move(bytes)),
      type_(type),
      token_bytes_(type == TokenType::kUint16 ? 2 : 4),
      vocabulary_(vocabulary),
      size_(bytes_->size() / token_bytes_) {
  if (bytes_->size() % token_bytes_ != 0) {
    throw Error(Exit::kData, "{}: expected whole tokens of {} bytes, found {} bytes", name(),
                token_bytes_, bytes_->size());
  }
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  while (!out.empty()) {
    const std::span<int32_t> part = out.first(std::min(out.size(), kChunk));
    if (type_ == TokenType::kUint32) {
      bytes_->read(first * token_bytes_, as_bytes(part));
    } else {
      std::array<uint16_t, kChunk> values;
      bytes_->read(first * token_bytes_,
                   {reinterpret_cast<uint8_t*>(values.data()), part.size() * sizeof(uint16_t)});
      for (size_t i = 0; i < part.size(); ++i) part[i] = values[i];
    }
    check(first, part);
    first += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

void TokenFile::check(int64_t first, std::span<const int32_t> tokens) const {
  if (all_below(tokens, static_cast<uint32_t>(vocabulary_))) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<uint32_t>(tokens[i]);
    if (id < vocabulary_) continue;
    const int64_t token = first + static_cast<int64_t>(i);
    throw Error(Exit::kData,
                "{}: expected token ids from 0 to {} (data.vocabulary - 1), found {} at token {}, "
                "byte {}; is data.type the file's?",
                name(), vocabulary_ - 1, id, token, token * token_bytes_);
  }
}

}  // namespace brim::data
