// What turns text into token ids and back. Each kind is a tokenizer that never changes and may be
// used by several threads, and encoders, one a thread, that remember words they have seen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace brim::text {

/// How the token that ends a document is written out.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the ids of `text`. "<|endoftext|>" in it is text like any other, so that nothing that
  /// is read can end a document. Throws Error(kData) for text that the tokenizer can't express.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// "bytes", "chars" or "gpt2".
  virtual std::string_view name() const = 0;
  /// The number of ids; they are 0 to vocabulary() - 1.
  virtual int64_t vocabulary() const = 0;
  /// The id that ends a document; encoders never give it.
  virtual int32_t end_of_text() const = 0;
  /// The encoder refers to this tokenizer.
  virtual std::unique_ptr<Encoder> encoder() const = 0;
  /// The bytes that an id stands for. Throws Error(kData) for an id outside the vocabulary.
  virtual std::string_view bytes(int32_t id) const = 0;
  /// Where text that continues may be cut: bytes that can be encoded by themselves, whatever
  /// follows, with the same ids in the end; 0 where there is no such place.
  virtual size_t safe_cut(std::string_view text) const = 0;

  /// encode() with an encoder of its own.
  std::vector<int32_t> encode(std::string_view text) const;
  /// The same of a prompt, which is UTF-8. Throws Error(kData), which begins with `where`, for one
  /// that isn't, or that the tokenizer can't express.
  std::vector<int32_t> encode_prompt(std::string_view text, std::string_view where) const;
  /// The bytes of all ids in a row. Not UTF-8 where ids begin or end within a character.
  std::string decode(std::span<const int32_t> ids) const;

 protected:
  /// Throws Error(kData) unless `id` is in the vocabulary.
  void check(int32_t id) const;
};

}  // namespace brim::text
