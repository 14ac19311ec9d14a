// Which changes of colour and shape a training image gets: colour jitter, RandAugment or
// TrivialAugmentWide, with torchvision's distributions (transforms.v2, version 0.26). The changes
// themselves are tone.h, colour.h, sharpen.h and warp.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "framework/recipe/fields.h"

namespace brim::data {

enum class AutoAugment { kNone, kRandAugment, kTrivialAugment };

/// Part of [data.augment].
struct PolicyConfig {
  AutoAugment automatic = AutoAugment::kNone;
  int64_t rand_ops = 2;
  int64_t rand_magnitude = 9;  // of 0 … 30
  double brightness = 0;  // the factor is drawn from 1 - this (at least 0) … 1 + this; 0: off
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  // the turn is drawn from -this … this, in full circles; 0: off

  void fields(recipe::Fields& f);
  /// Whether any colour jitter is on.
  bool jitters() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
  /// Logs which keys have no effect.
  void warn() const;
  /// Throws Error(kRecipe) where images of `channels` channels can't be changed so; logs
  /// which keys have no effect on them.
  void check_channels(int64_t channels) const;
};

/// What automatic augmentation chooses from, in torchvision's order.
enum class ImageOp {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int64_t kImageOps = 14;
inline constexpr int64_t kMagnitudeBins = 31;

/// Whether half of the images get the opposite of the magnitude.
bool is_signed(ImageOp op);

/// The magnitude in bin 0 … 30 of RandAugment or TrivialAugmentWide; 0 for an op without one.
double magnitude_of(AutoAugment space, ImageOp op, int64_t bin, const ImageShape& shape);

/// Changes an image [height, width, 1 or 3] in place. Magnitudes are those of magnitude_of(), with
/// either sign: a slope, pixels (the fraction dropped), degrees, a factor less 1, bits, a share of
/// the range.
void apply(ImageOp op, double magnitude, std::span<uint8_t> image, const ImageShape& shape);

/// Changes a training image in place as the config says: automatic augmentation, or else jitter in
/// random order.
void vary_image(const PolicyConfig& config, RandomStream& random, std::span<uint8_t> image,
                const ImageShape& shape);

}  // namespace brim::data
