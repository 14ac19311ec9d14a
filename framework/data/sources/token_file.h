// Token ids in a file as nanoGPT writes them: little-endian uint16 or uint32 values and nothing
// else. https://github.com/karpathy/nanoGPT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "framework/data/sources/byte_source.h"

namespace brim::data {

// Names in a folder that text/tokenize.h makes.
inline constexpr std::string_view kTrainTokens = "train.bin";
inline constexpr std::string_view kEvalTokens = "eval.bin";
inline constexpr std::string_view kTokenDescription = "tokens.json";

enum class TokenType { kUint16, kUint32 };

/// Const members may be called from several threads at once.
class TokenFile {
 public:
  /// `vocabulary` is in [1, 2^31]. Throws Error(kData) where the file doesn't hold a whole number
  /// of tokens.
  TokenFile(std::unique_ptr<ByteSource> bytes, TokenType type, int64_t vocabulary);

  const std::string& name() const { return bytes_->name(); }
  /// In tokens.
  int64_t size() const { return size_; }
  int64_t vocabulary() const { return vocabulary_; }
  /// Fills `out` with tokens first …, each in [0, vocabulary). Throws Error(kData) naming the place
  /// of one that isn't, and where the file has become shorter.
  void read(int64_t first, std::span<int32_t> out) const;

 private:
  [[noreturn]] void throw_outside(int64_t first, std::span<const int32_t> tokens) const;

  std::unique_ptr<ByteSource> bytes_;
  TokenType type_;
  int64_t token_bytes_;
  int64_t vocabulary_;
  int64_t size_;
};

}  // namespace brim::data
