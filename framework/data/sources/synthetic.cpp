#include "framework/data/sources/synthetic.h"

#include <utility>

namespace brim::data {
namespace {

constexpr int64_t kGrid = 8;  // a class's pattern is this many cells high and wide
constexpr uint64_t kPatternSeed = 1;
constexpr uint64_t kNoiseSeed = 2;

class SyntheticDataset final : public ImageSamples {
 public:
  /// Samples first … first + size - 1 of the endless sequence.
  SyntheticDataset(const SyntheticConfig& config, int64_t first, int64_t size,
                   const AugmentConfig& augment)
      : shape_{config.height, config.width, config.channels},
        classes_(config.classes),
        first_(first),
        size_(size),
        augment_(augment) {
    patterns_.resize(static_cast<size_t>(classes_ * kGrid * kGrid * shape_.channels));
    RandomStream random(kPatternSeed, 0, 0);
    for (uint8_t& value : patterns_) value = static_cast<uint8_t>(random.below(128));
    for (int64_t x = 0; x < shape_.width; ++x) {
      for (int64_t c = 0; c < shape_.channels; ++c) {
        in_pattern_.push_back(x * kGrid / shape_.width * shape_.channels + c);
      }
    }
  }

  int64_t size() const override { return size_; }
  ImageShape shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override { return numbered_classes(classes_); }
  std::string name(int64_t index) const override { return fmt::format("synthetic[{}]", index); }
  int64_t label(int64_t index) const override { return (first_ + index) % classes_; }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    if (random == nullptr) {
      draw(first_ + index, label(index), pixels);
      return label(index);
    }
    thread_local std::vector<uint8_t> plain;
    plain.resize(pixels.size());
    draw(first_ + index, label(index), plain);
    read_pixels(plain.data(), shape_, augment_, random, pixels);
    return label(index);
  }

 private:
  /// The class's pattern, and noise of 0 to 127 on each value.
  void draw(int64_t number, int64_t label, std::span<uint8_t> pixels) const {
    RandomStream(kNoiseSeed, static_cast<uint64_t>(number), 0).fill(pixels);
    const int64_t cells = kGrid * shape_.channels;  // values of a row of the pattern
    const uint8_t* pattern = patterns_.data() + label * kGrid * cells;
    thread_local std::vector<uint8_t> plain;  // a row without noise
    plain.resize(in_pattern_.size());
    int64_t drawn = -1;
    uint8_t* row = pixels.data();
    for (int64_t y = 0; y < shape_.height; ++y, row += plain.size()) {
      if (const int64_t of_pattern = y * kGrid / shape_.height; of_pattern != drawn) {
        drawn = of_pattern;
        for (size_t i = 0; i < plain.size(); ++i)
          plain[i] = pattern[drawn * cells + in_pattern_[i]];
      }
      const uint8_t* under = plain.data();
      for (size_t i = 0; i < plain.size(); ++i) {
        row[i] = static_cast<uint8_t>(under[i] + (row[i] & 127U));
      }
    }
  }

  ImageShape shape_;
  int64_t classes_;
  int64_t first_;
  int64_t size_;
  AugmentConfig augment_;
  std::vector<uint8_t> patterns_;    // [classes, kGrid, kGrid, channels], each value under 128
  std::vector<int64_t> in_pattern_;  // where each value of a row is in the pattern's row
};

}  // namespace

void SyntheticConfig::fields(recipe::Fields& f) {
  f.value("samples", samples, "training images", recipe::between(1, 1e12));
  f.value("eval_samples", eval_samples, "evaluation images; 0: none", recipe::between(0, 1e12));
  f.value("classes", classes, "classes, each with a pattern of its own", recipe::between(1, 1e5));
  f.value("height", height, "pixels", recipe::between(1, 4096));
  f.value("width", width, "pixels", recipe::between(1, 4096));
  f.value("channels", channels, "values per pixel", recipe::between(1, 16));
}

std::unique_ptr<Dataset> SyntheticConfig::open_train(const AugmentConfig& augment) const {
  return std::make_unique<SyntheticDataset>(*this, 0, samples, augment);
}

std::unique_ptr<Dataset> SyntheticConfig::open_eval() const {
  if (eval_samples == 0) return nullptr;
  return std::make_unique<SyntheticDataset>(*this, samples, eval_samples, AugmentConfig{});
}

}  // namespace brim::data
