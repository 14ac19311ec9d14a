// How an image of any size becomes a sample of the dataset's shape: cropping, resizing, flipping.
// Random choices come from the sample's own stream, so they don't depend on threads or ranks.
#pragma once

#include <cstdint>
#include <span>

#include "framework/base/random.h"
#include "framework/data/dataset.h"
#include "framework/data/mix.h"
#include "framework/data/policy.h"
#include "framework/data/resize.h"
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

/// For evaluation. The shorter side is resized to `resize` pixels, then the centre is cut out;
/// resize 0: the image has `shape` already and is copied. `resize` is at least shape's sides.
void fit_image(const ImageView& image, const ImageShape& shape, int64_t resize,
               std::span<uint8_t> out);

/// For training: a random resized crop, or fit_image() with a random crop from a black border of
/// `pad` pixels; then a flip with probability ½; then vary_image().
void augment_image(const ImageView& image, const ImageShape& shape, int64_t resize,
                   const AugmentConfig& config, RandomStream& random, std::span<uint8_t> out);

/// The box of a random resized crop, chosen as by torchvision's RandomResizedCrop: ten tries, then
/// the largest centred box whose ratio is allowed.
Box random_resized_box(int64_t height, int64_t width, const AugmentConfig& config,
                       RandomStream& random);

}  // namespace brim::data
