#include "framework/data/augment/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "framework/base/error.h"
#include "framework/data/loading/stages.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, 3> kCropWords = {"none", "random_resized", "pad"};

/// To nearest, ties to even: the rounding of Python's round(), which the reference uses.
int64_t round_even(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

/// Replaces the image by a cut of the same size from itself with a black border of `pad` pixels.
void shift_in_border(std::span<uint8_t> image, const ImageShape& shape, int64_t pad,
                     RandomStream& random) {
  const int64_t top = random.below(2 * pad + 1) - pad;
  const int64_t left = random.below(2 * pad + 1) - pad;
  const std::vector<uint8_t> before(image.begin(), image.end());
  const int64_t row = shape.width * shape.channels;
  const int64_t first = std::clamp<int64_t>(-left, 0, shape.width);
  const int64_t last = std::clamp<int64_t>(shape.width - left, 0, shape.width);
  std::fill(image.begin(), image.end(), uint8_t{0});
  for (int64_t y = 0; y < shape.height; ++y) {
    if (y + top < 0 || y + top >= shape.height || first >= last) continue;
    std::memcpy(image.data() + y * row + first * shape.channels,
                before.data() + (y + top) * row + (first + left) * shape.channels,
                static_cast<size_t>((last - first) * shape.channels));
  }
}

void flip_left_right(std::span<uint8_t> image, const ImageShape& shape) {
  for (int64_t y = 0; y < shape.height; ++y) {
    uint8_t* left = image.data() + y * shape.width * shape.channels;
    uint8_t* right = left + (shape.width - 1) * shape.channels;
    for (; left < right; left += shape.channels, right -= shape.channels) {
      std::swap_ranges(left, left + shape.channels, right);
    }
  }
}

}  // namespace

void AugmentConfig::fields(recipe::Fields& f) {
  f.value("flip", flip, "mirror left and right with probability one half");
  f.choice("crop", crop, kCropWords,
           "random_resized: a random part at a random scale; pad: a random shift over a black "
           "border");
  f.value("pad", pad, "width of that border in pixels", recipe::between(0, 1024));
  f.value("scale_min", scale_min, "least share of the image's area in a random_resized crop",
          {.low = 0, .high = 1, .low_open = true});
  f.value("scale_max", scale_max, "greatest share", {.low = 0, .high = 1, .low_open = true});
  f.value("ratio_min", ratio_min, "least width over height of a random_resized crop",
          {.low = 0.01, .high = 100});
  f.value("ratio_max", ratio_max, "greatest width over height", {.low = 0.01, .high = 100});
  policy.fields(f);
  mix.fields(f);
}

void AugmentConfig::check() const {
  if (scale_min > scale_max) {
    throw Error(Exit::kRecipe,
                "[data.augment]: expected scale_min to be at most scale_max, found {} and {}",
                scale_min, scale_max);
  }
  if (ratio_min > ratio_max) {
    throw Error(Exit::kRecipe,
                "[data.augment]: expected ratio_min to be at most ratio_max, found {} and {}",
                ratio_min, ratio_max);
  }
}

CropPlan place_whole(int64_t height, int64_t width, const ImageShape& shape, int64_t resize) {
  const int64_t shorter = std::min(height, width);
  const int64_t to_height = resize * height / shorter;
  const int64_t to_width = resize * width / shorter;
  return {.source = {0, 0, height, width},
          .height = to_height,
          .width = to_width,
          .window = {round_even(static_cast<double>(to_height - shape.height) / 2),
                     round_even(static_cast<double>(to_width - shape.width) / 2), shape.height,
                     shape.width}};
}

CropPlan place_randomly(int64_t height, int64_t width, const ImageShape& shape, int64_t resize,
                        const AugmentConfig& config, RandomStream& random) {
  if (config.crop != Crop::kRandomResized) return place_whole(height, width, shape, resize);
  return {.source = random_resized_box(height, width, config, random),
          .height = shape.height,
          .width = shape.width,
          .window = {0, 0, shape.height, shape.width}};
}

Box random_resized_box(int64_t height, int64_t width, const AugmentConfig& config,
                       RandomStream& random) {
  const auto area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(config.scale_min, config.scale_max);
    const double ratio =
        std::exp(random.uniform(std::log(config.ratio_min), std::log(config.ratio_max)));
    const int64_t w = round_even(std::sqrt(target * ratio));
    const int64_t h = round_even(std::sqrt(target / ratio));
    if (w > 0 && w <= width && h > 0 && h <= height) {
      const int64_t top = random.below(height - h + 1);
      const int64_t left = random.below(width - w + 1);
      return {top, left, h, w};
    }
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t h = height;
  int64_t w = width;
  if (ratio < config.ratio_min) {
    h = round_even(static_cast<double>(w) / config.ratio_min);
  } else if (ratio > config.ratio_max) {
    w = round_even(static_cast<double>(h) * config.ratio_max);
  }
  h = std::clamp<int64_t>(h, 1, height);
  w = std::clamp<int64_t>(w, 1, width);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

void augment_placed(const ImageShape& shape, const AugmentConfig& config, RandomStream& random,
                    std::span<uint8_t> image) {
  enter_stage(Stage::kAugment);
  if (config.crop == Crop::kPad) shift_in_border(image, shape, config.pad, random);
  if (config.flip && random.below(2) == 1) flip_left_right(image, shape);
  vary_image(config.policy, random, image, shape);
}

void read_pixels(const uint8_t* pixels, const ImageShape& shape, const AugmentConfig& config,
                 RandomStream* random, std::span<uint8_t> out) {
  if (random != nullptr && config.crop == Crop::kRandomResized) {
    const ImageView image = {pixels, shape.height, shape.width, shape.channels,
                             shape.width * shape.channels};
    resize(image, place_randomly(shape.height, shape.width, shape, 0, config, *random),
           Filter::kBilinear, out);
  } else {
    std::memcpy(out.data(), pixels, static_cast<size_t>(shape.bytes()));
  }
  if (random != nullptr) augment_placed(shape, config, *random, out);
}

}  // namespace brim::data
