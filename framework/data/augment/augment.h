// How an image of any size becomes a sample of the dataset's shape: cropping, resizing, flipping.
// Random choices come from the sample's own stream, so they don't depend on threads or ranks.
#pragma once

#include <cstdint>
#include <span>

#include "framework/base/random.h"
#include "framework/data/augment/mix.h"
#include "framework/data/augment/policy.h"
#include "framework/data/dataset.h"
#include "framework/data/image/resize.h"
#include "framework/recipe/fields.h"

namespace brim::data {

enum class Crop { kNone, kRandomResized, kPad };

/// [data.augment]: training only.
struct AugmentConfig {
  bool flip = false;
  Crop crop = Crop::kNone;
  int64_t pad = 4;          // pixels added to each side before a "pad" crop
  double scale_min = 0.08;  // share of the image's area that a "random_resized" crop takes
  double scale_max = 1.0;
  double ratio_min = 3. / 4;  // its width over its height, before resizing
  double ratio_max = 4. / 3;
  PolicyConfig policy = {};
  MixConfig mix = {};

  void fields(recipe::Fields& f);
  /// Throws Error(kRecipe) where a minimum is above its maximum.
  void check() const;
};

/// For evaluation: the shorter side of the image becomes `resize` pixels, then the centre is cut
/// out. `resize` is at least shape's sides.
CropPlan place_whole(int64_t height, int64_t width, const ImageShape& shape, int64_t resize);

/// For training: a random resized crop, or else place_whole().
CropPlan place_randomly(int64_t height, int64_t width, const ImageShape& shape, int64_t resize,
                        const AugmentConfig& config, RandomStream& random);

/// The rest of the augmentation, on an image that has its final shape: a random cut from a black
/// border of `pad` pixels; a flip with probability ½; vary_image().
void augment_placed(const ImageShape& shape, const AugmentConfig& config, RandomStream& random,
                    std::span<uint8_t> image);

/// For datasets that hold pixels of the final shape: copies or crops, then augments. `random` null:
/// a copy.
void read_pixels(const uint8_t* pixels, const ImageShape& shape, const AugmentConfig& config,
                 RandomStream* random, std::span<uint8_t> out);

/// The box of a random resized crop, chosen as by torchvision's RandomResizedCrop: ten tries, then
/// the largest centred box whose ratio is allowed.
Box random_resized_box(int64_t height, int64_t width, const AugmentConfig& config,
                       RandomStream& random);

}  // namespace brim::data
