#include <algorithm>
#include <cstdint>

#include "framework/recipe/parse_toml.h"

namespace brim::recipe {
namespace {

// Brackets and dots are each held to this, so a tree is at most the product deep.
constexpr int kMaxDepth = 32;

/// Walks TOML text, skipping comments and strings. On broken text it may lose its way, but never
/// before the place at which toml++ stops.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  std::optional<Location> find() {
    int brackets = 0;
    int dots = 0;  // in the key, header or number at hand
    for (; at_ < text_.size(); ++at_) {
      switch (text_[at_]) {
        case '#':
          at_ = std::min(text_.find('\n', at_), text_.size());
          dots = 0;
          break;
        case '"':
        case '\'':
          skip_string();
          break;
        case '[':
        case '{':
          if (++brackets > kMaxDepth) return place();
          dots = 0;
          break;
        case ']':
        case '}':
          --brackets;
          dots = 0;
          break;
        case '.':
          if (++dots > kMaxDepth) return place();
          break;
        case '=':
        case ',':
        case '\n':
          dots = 0;
          break;
        default:
          break;
      }
    }
    return std::nullopt;
  }

 private:
  /// From an opening quote to the last closing one.
  void skip_string() {
    const char quote = text_[at_];
    const std::string triple(3, quote);
    const bool multiline = text_.substr(at_, 3) == triple;
    at_ += multiline ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\' && quote == '"') {
        ++at_;
      } else if (!multiline && (text_[at_] == quote || text_[at_] == '\n')) {
        return;
      } else if (multiline && text_.substr(at_, 3) == triple) {
        at_ += 2;
        // Up to two quotes may stand right before the closing three.
        for (int extra = 0; extra < 2 && text_.substr(at_ + 1, 1) == triple.substr(2); ++extra) {
          ++at_;
        }
        return;
      }
    }
  }

  Location place() const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
    return {source_, line, static_cast<int64_t>(at_ - start) + 1};
  }

  std::string_view text_;
  const std::string& source_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Location> find_deep_nesting(std::string_view text, const std::string& source) {
  return Scanner(text, source).find();
}

}  // namespace brim::recipe
