// `gpt2`: byte-level BPE as GPT-2 has it (https://github.com/openai/gpt-2, encoder.py): text is
// split into words (gpt2_words.h), a word's bytes become tokens, and neighbours are merged, the
// pair that comes first in merges.txt first, until no pair is in it. Any bytes can be encoded, and
// decoding gives the same bytes back.
#pragma once

#include <array>

#include "framework/text/pair_table.h"
#include "framework/text/tokenizer.h"

namespace brim::text {

/// A word of more bytes, a run of letters, numbers, signs or spaces, is encoded in parts of so
/// many, so that memory is bounded: about 20 MB an encoder.
inline constexpr size_t kLongestWord = size_t{1} << 18;

/// What merging takes.
struct MergeTables {
  std::array<int32_t, 256> byte_ids{};
  PairTable pairs;
};

class Gpt2Tokenizer final : public Tokenizer {
 public:
  /// The contents of vocab.json and merges.txt, and what errors call them. Throws Error(kData)
  /// where either is damaged, where a byte or <|endoftext|> has no token, and where a merge needs a
  /// token that the vocabulary lacks.
  Gpt2Tokenizer(std::string_view vocabulary_json, const std::string& vocabulary_name,
                std::string_view merges_text, const std::string& merges_name);

  std::string_view name() const override { return "gpt2"; }
  int64_t vocabulary() const override { return static_cast<int64_t>(tokens_.size()); }
  int32_t end_of_text() const override { return end_; }
  /// An encoder takes O(n log n) for a word of n bytes and remembers short words: at most 65,536 of
  /// them, about 10 MB.
  std::unique_ptr<Encoder> encoder() const override;
  std::string_view bytes(int32_t id) const override;
  size_t safe_cut(std::string_view text) const override;

 private:
  std::vector<std::string> tokens_;  // as bytes
  MergeTables tables_;
  int32_t end_ = -1;
};

}  // namespace brim::text
