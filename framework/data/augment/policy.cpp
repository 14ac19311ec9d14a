#include "framework/data/augment/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/data/augment/colour.h"
#include "framework/data/augment/sharpen.h"
#include "framework/data/augment/tone.h"
#include "framework/data/augment/warp.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, 3> kAutoWords = {"none", "rand_augment", "trivial_augment"};

/// torch.linspace(0, last, 31)[bin] in float32, as processors with a fused multiply-add round it.
double evenly(double last, int64_t bin) {
  const double end = static_cast<float>(last);
  const double step = static_cast<float>(last) / static_cast<float>(kMagnitudeBins - 1);
  const double value = bin < kMagnitudeBins / 2
                           ? step * static_cast<double>(bin)
                           : end - step * static_cast<double>(kMagnitudeBins - 1 - bin);
  return static_cast<float>(value);
}

/// Greatest magnitudes.
struct Limits {
  double slope;
  double right;  // pixels
  double down;
  double degrees;
  double factor;
  int bits;  // dropped
};

Limits limits_of(AutoAugment space, const ImageShape& shape) {
  if (space == AutoAugment::kTrivialAugment) return {0.99, 32, 32, 135, 0.99, 6};
  return {0.3,
          150.0 / 331.0 * static_cast<double>(shape.width),
          150.0 / 331.0 * static_cast<double>(shape.height),
          30,
          0.9,
          4};
}

void augment_automatically(AutoAugment space, int64_t ops, int64_t fixed_bin, RandomStream& random,
                           std::span<uint8_t> image, const ImageShape& shape) {
  for (int64_t i = 0; i < ops; ++i) {
    const auto op = static_cast<ImageOp>(random.below(kImageOps));
    const int64_t bin = fixed_bin < 0 ? random.below(kMagnitudeBins) : fixed_bin;
    const double magnitude = magnitude_of(space, op, bin, shape);
    const bool opposite = is_signed(op) && random.below(2) == 1;
    apply(op, opposite ? -magnitude : magnitude, image, shape);
  }
}

double draw_factor(double spread, RandomStream& random) {
  return random.uniform(std::max(0.0, 1 - spread), 1 + spread);
}

void jitter(const PolicyConfig& config, RandomStream& random, std::span<uint8_t> image,
            const ImageShape& shape) {
  std::array<int, 4> order = {0, 1, 2, 3};
  for (size_t i = order.size() - 1; i > 0; --i) {  // Fisher-Yates
    std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
  }
  const double brightness = draw_factor(config.brightness, random);
  const double contrast = draw_factor(config.contrast, random);
  const double saturation = draw_factor(config.saturation, random);
  const double turn = random.uniform(-config.hue, config.hue);
  for (const int change : order) {
    if (change == 0 && config.brightness > 0) adjust_brightness(image, brightness);
    if (change == 1 && config.contrast > 0) adjust_contrast(image, shape.channels, contrast);
    if (change == 2 && config.saturation > 0) adjust_saturation(image, shape.channels, saturation);
    if (change == 3 && config.hue > 0) adjust_hue(image, shape.channels, turn);
  }
}

}  // namespace

void PolicyConfig::fields(recipe::Fields& f) {
  f.choice("auto", automatic, kAutoWords,
           "rand_augment: rand_ops random changes of colour or shape; trivial_augment: one of "
           "random strength; as RandAugment and TrivialAugmentWide of torchvision.transforms.v2");
  f.value("rand_ops", rand_ops, "changes that rand_augment makes one after the other",
          recipe::between(1, 100));
  f.value("rand_magnitude", rand_magnitude, "their strength, of 31 steps from 0",
          recipe::between(0, kMagnitudeBins - 1));
  f.value("brightness", brightness, "colour jitter: brightness times 1 - this to 1 + this; 0: off",
          recipe::between(0, 100));
  f.value("contrast", contrast, "the same for contrast", recipe::between(0, 100));
  f.value("saturation", saturation, "the same for saturation", recipe::between(0, 100));
  f.value("hue", hue, "hue turned by up to this share of a circle either way; 0: off",
          recipe::between(0, 0.5));
}

void PolicyConfig::warn() const {
  const PolicyConfig defaults;
  if (automatic != AutoAugment::kRandAugment &&
      (rand_ops != defaults.rand_ops || rand_magnitude != defaults.rand_magnitude)) {
    log::warning(
        "data.augment.rand_ops and rand_magnitude have no effect: auto is not \"rand_augment\"");
  }
  if (automatic != AutoAugment::kNone && jitters()) {
    log::warning(
        "data.augment.brightness, contrast, saturation and hue have no effect: auto is not "
        "\"none\"");
  }
}

void PolicyConfig::check_channels(int64_t channels) const {
  if (automatic == AutoAugment::kNone && !jitters()) return;
  if (channels != 1 && channels != 3) {
    throw Error(Exit::kRecipe,
                "[data.augment]: expected images of 1 or 3 channels for '{}', found {} channels; "
                "leave it out",
                automatic != AutoAugment::kNone ? "auto" : "brightness, contrast, saturation, hue",
                channels);
  }
  if (channels == 1 && automatic == AutoAugment::kNone && (saturation > 0 || hue > 0)) {
    log::warning("data.augment.saturation and hue have no effect: the images have 1 channel");
  }
}

bool is_signed(ImageOp op) { return op >= ImageOp::kShearX && op <= ImageOp::kSharpness; }

double magnitude_of(AutoAugment space, ImageOp op, int64_t bin, const ImageShape& shape) {
  const Limits limits = limits_of(space, shape);
  switch (op) {
    case ImageOp::kShearX:
    case ImageOp::kShearY:
      return evenly(limits.slope, bin);
    case ImageOp::kTranslateX:
      return evenly(limits.right, bin);
    case ImageOp::kTranslateY:
      return evenly(limits.down, bin);
    case ImageOp::kRotate:
      return evenly(limits.degrees, bin);
    case ImageOp::kBrightness:
    case ImageOp::kColor:
    case ImageOp::kContrast:
    case ImageOp::kSharpness:
      return evenly(limits.factor, bin);
    case ImageOp::kPosterize:
      return std::nearbyint(8 - static_cast<double>(bin * limits.bits) / (kMagnitudeBins - 1));
    case ImageOp::kSolarize:  // the more, the lower the threshold: linspace(1, 0, 31)
      return evenly(1, kMagnitudeBins - 1 - bin);
    case ImageOp::kIdentity:
    case ImageOp::kAutoContrast:
    case ImageOp::kEqualize:
      return 0;
  }
  throw Error(Exit::kBug, "image operation {} is not known", static_cast<int>(op));
}

void apply(ImageOp op, double magnitude, std::span<uint8_t> image, const ImageShape& shape) {
  switch (op) {
    case ImageOp::kIdentity:
      return;
    case ImageOp::kShearX:
      return shear_x(image, shape, magnitude);
    case ImageOp::kShearY:
      return shear_y(image, shape, magnitude);
    case ImageOp::kTranslateX:
      return translate(image, shape, static_cast<int64_t>(magnitude), 0);
    case ImageOp::kTranslateY:
      return translate(image, shape, 0, static_cast<int64_t>(magnitude));
    case ImageOp::kRotate:
      return rotate(image, shape, magnitude);
    case ImageOp::kBrightness:
      return adjust_brightness(image, 1 + magnitude);
    case ImageOp::kColor:
      return adjust_saturation(image, shape.channels, 1 + magnitude);
    case ImageOp::kContrast:
      return adjust_contrast(image, shape.channels, 1 + magnitude);
    case ImageOp::kSharpness:
      return adjust_sharpness(image, shape, 1 + magnitude);
    case ImageOp::kPosterize:
      return posterize(image, static_cast<int>(magnitude));
    case ImageOp::kSolarize:
      return solarize(image, 255 * magnitude);
    case ImageOp::kAutoContrast:
      return autocontrast(image, shape.channels);
    case ImageOp::kEqualize:
      return equalize(image, shape.channels);
  }
}

void vary_image(const PolicyConfig& config, RandomStream& random, std::span<uint8_t> image,
                const ImageShape& shape) {
  switch (config.automatic) {
    case AutoAugment::kRandAugment:
      return augment_automatically(config.automatic, config.rand_ops, config.rand_magnitude, random,
                                   image, shape);
    case AutoAugment::kTrivialAugment:
      return augment_automatically(config.automatic, 1, /*fixed_bin=*/-1, random, image, shape);
    case AutoAugment::kNone:
      if (config.jitters()) jitter(config, random, image, shape);
  }
}

}  // namespace brim::data
