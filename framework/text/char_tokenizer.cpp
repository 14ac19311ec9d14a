#include "framework/text/char_tokenizer.h"

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/text/unicode.h"

namespace brim::text {
namespace {

using IdOfCodePoint = std::unordered_map<char32_t, int32_t>;

class CharEncoder final : public Encoder {
 public:
  explicit CharEncoder(const IdOfCodePoint& ids) : ids_(ids) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    for (size_t at = 0; at < text.size();) {
      const CodePoint point = first_code_point(text.substr(at));
      if (point.bytes == 0) {
        throw Error(Exit::kData, "expected UTF-8, found the byte 0x{:02X} at byte {} of the text",
                    static_cast<uint8_t>(text[at]), at);
      }
      const auto found = ids_.find(point.value);
      if (found == ids_.end()) {
        throw Error(Exit::kData,
                    "the character {} (U+{:04X}) is not in the vocabulary, which has {} characters",
                    in_quotes(text.substr(at, point.bytes)), static_cast<uint32_t>(point.value),
                    ids_.size());
      }
      ids.push_back(found->second);
      at += point.bytes;
    }
  }

 private:
  const IdOfCodePoint& ids_;
};

}  // namespace

CharTokenizer::CharTokenizer(std::vector<std::string> tokens, const std::string& where)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens_[i];
    const auto id = static_cast<int32_t>(i);
    if (token == kEndOfText) {
      end_ = id;
      continue;
    }
    const CodePoint point = token.empty() ? CodePoint{} : first_code_point(token);
    if (point.bytes == 0 || point.bytes != token.size()) {
      throw Error(Exit::kData, "{}: expected single characters and \"{}\", found {}", where,
                  kEndOfText, in_quotes(token));
    }
    ids_.emplace(point.value, id);
  }
  if (end_ >= 0) return;
  throw Error(Exit::kData, "{}: the token \"{}\", which ends a document, is missing", where,
              kEndOfText);
}

std::vector<std::string> CharTokenizer::tokens_for(const std::set<char32_t>& points) {
  std::vector<std::string> tokens;
  for (const char32_t point : points) append_utf8(tokens.emplace_back(), point);
  tokens.emplace_back(kEndOfText);
  return tokens;
}

std::unique_ptr<Encoder> CharTokenizer::encoder() const {
  return std::make_unique<CharEncoder>(ids_);
}

std::string_view CharTokenizer::bytes(int32_t id) const {
  check(id);
  return tokens_[static_cast<size_t>(id)];
}

size_t CharTokenizer::safe_cut(std::string_view text) const {
  return text.size() - cut_off_bytes(text);
}

}  // namespace brim::text
