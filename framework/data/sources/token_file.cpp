#include "framework/data/sources/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "framework/base/error.h"
#include "framework/data/simd_dispatch.h"

namespace brim::data {
namespace {

static_assert(std::endian::native == std::endian::little, "values are taken as they lie");

// Tokens that are read and converted at a time, so that they stay in the first cache.
constexpr size_t kChunk = 4096;

std::span<uint8_t> as_bytes(std::span<int32_t> tokens) {
  return {reinterpret_cast<uint8_t*>(tokens.data()), tokens.size_bytes()};
}

/// Whether each id is in [0, vocabulary): the loops below collect what tells in the highest bit,
/// without a branch, so that the compiler vectorises them.
__attribute__((always_inline)) inline uint32_t outside(uint32_t id, uint32_t vocabulary) {
  return id | (vocabulary - 1 - id);
}
bool is_inside(uint32_t collected) { return collected >> 31 == 0; }

bool all_inside(std::span<const int32_t> ids, uint32_t vocabulary) {
  uint32_t collected = 0;
  dispatch_simd([&]() __attribute__((always_inline)) {
    uint32_t all = 0;
    for (const int32_t id : ids) all |= outside(static_cast<uint32_t>(id), vocabulary);
    collected = all;
  });
  return is_inside(collected);
}

/// The same while ids are widened to `out`.
bool widen(const uint16_t* ids, uint32_t vocabulary, std::span<int32_t> out) {
  uint32_t collected = 0;
  dispatch_simd([&]() __attribute__((always_inline)) {
    uint32_t all = 0;
    int32_t* const to = out.data();
    for (size_t i = 0, count = out.size(); i < count; ++i) {
      to[i] = ids[i];
      all |= outside(ids[i], vocabulary);
    }
    collected = all;
  });
  return is_inside(collected);
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
  const auto vocabulary = static_cast<uint32_t>(vocabulary_);
  while (!out.empty()) {
    const std::span<int32_t> part = out.first(std::min(out.size(), kChunk));
    bool inside = false;
    if (type_ == TokenType::kUint32) {
      bytes_->read(first * token_bytes_, as_bytes(part));
      inside = all_inside(part, vocabulary);
    } else {
      std::array<uint16_t, kChunk> ids;
      bytes_->read(first * token_bytes_,
                   {reinterpret_cast<uint8_t*>(ids.data()), part.size() * sizeof(uint16_t)});
      inside = widen(ids.data(), vocabulary, part);
    }
    if (!inside) throw_outside(first, part);
    first += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

void TokenFile::throw_outside(int64_t first, std::span<const int32_t> tokens) const {
  const auto found = std::ranges::find_if(
      tokens, [this](int32_t id) { return static_cast<uint32_t>(id) >= vocabulary_; });
  const int64_t token = first + (found - tokens.begin());
  throw Error(
      Exit::kData,
      "{}: expected token ids from 0 to {} (data.vocabulary - 1), found {} at token {}, "
      "byte {}; expected the tokenizer's ids in data.vocabulary, and the type of the file's "
      "tokens in data.type",
      name(), vocabulary_ - 1, static_cast<uint32_t>(*found), token, token * token_bytes_);
}

}  // namespace brim::data
