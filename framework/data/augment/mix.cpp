#include "framework/data/augment/mix.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/data/augment/beta.h"

namespace brim::data {
namespace {

// Streams of their own, apart from the samples'.
constexpr uint64_t kPairStream = 0x6D69785F70616972;
constexpr uint64_t kEraseStream = 0x65726173655F626F;

constexpr double kLeastArea = 0.02;  // shares of the image's area
constexpr double kMaxArea = 0.33;
constexpr double kLeastRatio = 0.3;  // height over width
constexpr double kMaxRatio = 3.3;

/// The box of torchvision's RandomErasing: ten tries, then none.
PixelRange draw_erased(const ImageShape& shape, RandomStream& random) {
  const auto area = static_cast<double>(shape.height) * static_cast<double>(shape.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(kLeastArea, kMaxArea);
    const double ratio = std::exp(random.uniform(std::log(kLeastRatio), std::log(kMaxRatio)));
    const auto height = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto width = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (height >= shape.height || width >= shape.width) continue;
    const auto top = static_cast<int32_t>(random.below(shape.height - height + 1));
    const auto left = static_cast<int32_t>(random.below(shape.width - width + 1));
    return {top, left, top + static_cast<int32_t>(height), left + static_cast<int32_t>(width)};
  }
  return {};
}

/// The box of torchvision's CutMix: of the other image's share of the area, centred anywhere, cut
/// off where the image ends.
PixelRange draw_cut(double share, const ImageShape& shape, RandomStream& random) {
  const double radius = 0.5 * std::sqrt(share);
  const int64_t x = random.below(shape.width);
  const int64_t y = random.below(shape.height);
  const auto across = static_cast<int64_t>(radius * static_cast<double>(shape.width));
  const auto down = static_cast<int64_t>(radius * static_cast<double>(shape.height));
  return {static_cast<int32_t>(std::max<int64_t>(y - down, 0)),
          static_cast<int32_t>(std::max<int64_t>(x - across, 0)),
          static_cast<int32_t>(std::min(y + down, shape.height)),
          static_cast<int32_t>(std::min(x + across, shape.width))};
}

/// What both images of a pair have in common.
struct Mixture {
  PixelRange mixed;
  float own;
};

Mixture draw_mixture(const MixConfig& config, const ImageShape& shape, RandomStream& random) {
  bool cut = config.mixup == 0;
  if (config.mixup > 0 && config.cutmix > 0) cut = random.below(2) == 1;
  const double own = draw_beta(cut ? config.cutmix : config.mixup, random);
  if (cut) return {draw_cut(1 - own, shape, random), 0};
  return {{0, 0, static_cast<int32_t>(shape.height), static_cast<int32_t>(shape.width)},
          static_cast<float>(own)};
}

}  // namespace

void MixConfig::fields(recipe::Fields& f) {
  f.value("mixup", mixup,
          "mix images and labels of pairs in shares from Beta(this, this); 0: off; with cutmix, "
          "each pair gets one of the two",
          {.low = 0, .high = 1000});
  f.value("cutmix", cutmix,
          "put a box of one image of a pair into the other, its area's share from Beta(this, "
          "this); 0: off",
          {.low = 0, .high = 1000});
  f.value("erase", erase, "probability that a random box of the image becomes the mean",
          recipe::between(0, 1));
}

std::vector<ImageChange> draw_changes(const MixConfig& config, uint64_t seed, int64_t epoch,
                                      int64_t first, int64_t count, const ImageShape& shape) {
  std::vector<ImageChange> changes;
  if (!config.mixes() && config.erase == 0) return changes;
  if (config.mixes() && first % 2 != 0) throw Error(Exit::kBug, "a batch begins within a pair");
  changes.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    RandomStream random(seed ^ kEraseStream, static_cast<uint64_t>(epoch),
                        static_cast<uint64_t>(first + i));
    if (config.erase > 0 && random.uniform() < config.erase) {
      changes[static_cast<size_t>(i)].erased = draw_erased(shape, random);
    }
  }
  if (!config.mixes()) return changes;
  for (int64_t i = 0; i + 1 < count; i += 2) {
    RandomStream random(seed ^ kPairStream, static_cast<uint64_t>(epoch),
                        static_cast<uint64_t>(first + i));
    const Mixture mixture = draw_mixture(config, shape, random);
    for (const int64_t own : {i, i + 1}) {
      ImageChange& change = changes[static_cast<size_t>(own)];
      change.mixed = mixture.mixed;
      change.own = mixture.own;
      change.partner = static_cast<int32_t>(own == i ? i + 1 : i);
    }
  }
  return changes;
}

float label_share(const ImageChange& change, const ImageShape& shape) {
  if (change.partner < 0) return 1;
  const PixelRange& box = change.mixed;
  const double area = static_cast<double>(box.bottom - box.top) * (box.right - box.left) /
                      (static_cast<double>(shape.height) * static_cast<double>(shape.width));
  return static_cast<float>(1 - area * (1 - static_cast<double>(change.own)));
}

}  // namespace brim::data
