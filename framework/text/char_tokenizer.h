// `chars`: an id for each character (code point) that the training text has, in ascending order,
// and the last for the end of a document.
#pragma once

#include <set>
#include <unordered_map>

#include "framework/text/tokenizer.h"

namespace brim::text {

class CharTokenizer final : public Tokenizer {
 public:
  /// `tokens` by id: single characters and "<|endoftext|>", in any order. Throws Error(kData),
  /// naming `where`, for anything else.
  CharTokenizer(std::vector<std::string> tokens, const std::string& where);

  /// The tokens for a text of these code points.
  static std::vector<std::string> tokens_for(const std::set<char32_t>& points);

  std::string_view name() const override { return "chars"; }
  int64_t vocabulary() const override { return static_cast<int64_t>(tokens_.size()); }
  int32_t end_of_text() const override { return end_; }
  /// Encoders throw Error(kData) for a character that isn't in the vocabulary.
  std::unique_ptr<Encoder> encoder() const override;
  std::string_view bytes(int32_t id) const override;
  size_t safe_cut(std::string_view text) const override;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<char32_t, int32_t> ids_;
  int32_t end_ = -1;
};

}  // namespace brim::text
