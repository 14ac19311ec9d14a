#include "framework/data/sources/synthetic_tokens.h"

#include <fmt/format.h>

#include <utility>

namespace brim::data {
namespace {

constexpr uint64_t kSeed = 3;
constexpr uint32_t kChoices = 4;  // tokens that may follow one

class SyntheticTokens final : public TokenSamples {
 public:
  /// Samples first … first + size - 1 of the endless sequence.
  SyntheticTokens(const SyntheticTokensConfig& config, int64_t first, int64_t size)
      : shape_{.length = config.length,
               .vocabulary = config.vocabulary,
               .has_documents = config.documents},
        first_(first),
        size_(size) {}

  int64_t size() const override { return size_; }
  TokenShape shape() const override { return shape_; }
  std::string name(int64_t index) const override {
    return fmt::format("synthetic_tokens[{}]", index);
  }

  int64_t read(int64_t index, RandomStream*, std::span<uint8_t> bytes) const override {
    const std::span<int32_t> values(reinterpret_cast<int32_t*>(bytes.data()),
                                    bytes.size() / sizeof(int32_t));
    const auto row = static_cast<size_t>(shape_.length + 1);
    RandomStream random(kSeed, static_cast<uint64_t>(first_ + index), 0);
    const auto vocabulary = static_cast<uint64_t>(shape_.vocabulary);
    uint64_t token = random.next_u32() % vocabulary;
    for (int32_t& value : values.first(row)) {
      value = static_cast<int32_t>(token);
      token = (token * 5 + 1 + random.next_u32() % kChoices) % vocabulary;
    }
    if (shape_.has_documents) two_documents(values.subspan(row));
    return 0;
  }

 private:
  /// Positions and segments of a row of two documents, of one where it has two tokens.
  void two_documents(std::span<int32_t> planes) const {
    const size_t row = planes.size() / 2;
    const size_t cut = row > 2 ? row / 2 : row;
    for (size_t i = 0; i < row; ++i) {
      planes[i] = static_cast<int32_t>(i < cut ? i : i - cut);
      planes[row + i] = i < cut ? 1 : 2;
    }
  }

  TokenShape shape_;
  int64_t first_;
  int64_t size_;
};

}  // namespace

void SyntheticTokensConfig::fields(recipe::Fields& f) {
  f.value("samples", samples, "training rows", recipe::between(1, 1e12));
  f.value("eval_samples", eval_samples, "evaluation rows; 0: none", recipe::between(0, 1e12));
  f.value("vocabulary", vocabulary, "number of different ids", recipe::between(2, 2147483648.0));
  f.value("length", length, "tokens that the model sees at a time", recipe::between(1, 1 << 24));
  f.value("documents", documents,
          "two documents in a row, attention within each; false: one text that continues");
}

std::unique_ptr<Dataset> SyntheticTokensConfig::open_train(const AugmentConfig& /*augment*/) const {
  return std::make_unique<SyntheticTokens>(*this, 0, samples);
}

std::unique_ptr<Dataset> SyntheticTokensConfig::open_eval() const {
  if (eval_samples == 0) return nullptr;
  return std::make_unique<SyntheticTokens>(*this, samples, eval_samples);
}

}  // namespace brim::data
