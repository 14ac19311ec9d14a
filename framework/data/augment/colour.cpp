#include "framework/data/augment/colour.h"

#include <algorithm>

#include "framework/data/augment/tone.h"
#include "framework/data/simd_dispatch.h"

#define BRIM_INLINE __attribute__((always_inline))

namespace brim::data {
namespace {

constexpr int kRun = 128;  // pixels that are changed together

/// Pixels with each colour by itself, in 0…255.
struct Planes {
  alignas(32) float red[kRun];
  alignas(32) float green[kRun];
  alignas(32) float blue[kRun];
};

BRIM_INLINE inline void load(const uint8_t* pixels, int count, Planes& planes) {
  for (int i = 0; i < count; ++i) {
    planes.red[i] = pixels[3 * i];
    planes.green[i] = pixels[3 * i + 1];
    planes.blue[i] = pixels[3 * i + 2];
  }
}

/// Cut to 0…255, the fraction dropped.
BRIM_INLINE inline uint8_t to_byte(float value) {
  return static_cast<uint8_t>(static_cast<int>(limit(value, 0.0F, 255.0F)));
}

BRIM_INLINE inline void store(const Planes& planes, int count, uint8_t* pixels) {
  for (int i = 0; i < count; ++i) {
    pixels[3 * i] = to_byte(planes.red[i]);
    pixels[3 * i + 1] = to_byte(planes.green[i]);
    pixels[3 * i + 2] = to_byte(planes.blue[i]);
  }
}

BRIM_INLINE inline float greater(float a, float b) { return a > b ? a : b; }
BRIM_INLINE inline float lesser(float a, float b) { return a < b ? a : b; }

BRIM_INLINE inline float grey_of(float red, float green, float blue) {
  return static_cast<float>(static_cast<int>(red * 0.2989F + green * 0.587F + blue * 0.114F));
}

/// Calls change(planes) for all pixels, kRun at a time; of the last run only a part may count.
template <class Change>
void change_pixels(std::span<uint8_t> image, const Change& change) {
  dispatch_simd([&]() BRIM_INLINE {
    Planes planes = {};
    const auto pixels = static_cast<int64_t>(image.size()) / 3;
    int64_t first = 0;
    for (; first + kRun <= pixels; first += kRun) {
      load(image.data() + 3 * first, kRun, planes);
      change(planes);
      store(planes, kRun, image.data() + 3 * first);
    }
    const auto rest = static_cast<int>(pixels - first);
    load(image.data() + 3 * first, rest, planes);
    change(planes);
    store(planes, rest, image.data() + 3 * first);
  });
}

int64_t sum_of_greys(std::span<const uint8_t> image) {
  int64_t sum = 0;
  dispatch_simd([&]() BRIM_INLINE {
    Planes planes = {};
    const auto pixels = static_cast<int64_t>(image.size()) / 3;
    for (int64_t first = 0; first < pixels; first += kRun) {
      const auto count = static_cast<int>(std::min<int64_t>(kRun, pixels - first));
      if (count < kRun) planes = {};  // black adds nothing
      load(image.data() + 3 * first, count, planes);
      int32_t part = 0;
      for (int i = 0; i < kRun; ++i) {
        part += static_cast<int>(grey_of(planes.red[i], planes.green[i], planes.blue[i]));
      }
      sum += part;
    }
  });
  return sum;
}

int64_t sum_of_values(std::span<const uint8_t> image) {
  int64_t sum = 0;
  for (const uint8_t value : image) sum += value;
  return sum;
}

/// How far a colour is below the greatest, 0…1, from its place on the circle of hues: 0 in two of
/// six sectors, rising or falling in one each, 1 in the other two. `place` is in 0…12.
BRIM_INLINE inline float paleness(float place) {
  const float within = place >= 6.0F ? place - 6.0F : place;
  return limit(lesser(within, 4.0F - within), 0.0F, 1.0F);
}

/// RGB to hue, saturation and value, the hue turned, and back; without jumps.
struct TurnHue {
  float turn;

  BRIM_INLINE void operator()(Planes& planes) const {
    constexpr auto kUnit = static_cast<float>(1.0 / 255);
    constexpr float kLevels = 255.999F;  // 0…1 to levels without rounding: torchvision's to_dtype
    for (int i = 0; i < kRun; ++i) {
      const float red = planes.red[i] * kUnit;
      const float green = planes.green[i] * kUnit;
      const float blue = planes.blue[i] * kUnit;
      const float most = greater(red, greater(green, blue));
      const float range = most - lesser(red, lesser(green, blue));
      const float saturation = range / (range == 0 ? 1.0F : most);
      const float divisor = range == 0 ? 1.0F : range;
      const float from_red = (most - red) / divisor;
      const float from_green = (most - green) / divisor;
      const float from_blue = (most - blue) / divisor;
      const float if_red = from_blue - from_green;
      const float if_green = from_red + 2.0F - from_blue;
      float sixths = from_green + 4.0F - from_red;
      sixths = most == green ? if_green : sixths;
      sixths = most == red ? if_red : sixths;
      float hue = sixths * static_cast<float>(1.0 / 6) + 1.0F;
      hue = hue >= 1.0F ? hue - 1.0F : hue;
      hue += turn;
      hue = hue < 0.0F ? hue + 1.0F : hue;
      hue = hue >= 1.0F ? hue - 1.0F : hue;

      const float place = hue * 6.0F;
      const float depth = most * saturation;
      planes.red[i] = (most - depth * paleness(place + 5.0F)) * kLevels;
      planes.green[i] = (most - depth * paleness(place + 3.0F)) * kLevels;
      planes.blue[i] = (most - depth * paleness(place + 1.0F)) * kLevels;
    }
  }
};

struct Saturate {
  float own;   // weight of the pixel's own value
  float grey;  // weight of its grey

  BRIM_INLINE void operator()(Planes& planes) const {
    for (int i = 0; i < kRun; ++i) {
      const float pale = grey * grey_of(planes.red[i], planes.green[i], planes.blue[i]);
      planes.red[i] = planes.red[i] * own + pale;
      planes.green[i] = planes.green[i] * own + pale;
      planes.blue[i] = planes.blue[i] * own + pale;
    }
  }
};

}  // namespace

void adjust_contrast(std::span<uint8_t> image, int64_t channels, double factor) {
  if (image.empty()) return;
  const int64_t sum = channels == 3 ? sum_of_greys(image) : sum_of_values(image);
  const int64_t pixels = static_cast<int64_t>(image.size()) / channels;
  const auto mean = static_cast<float>(static_cast<double>(sum) / static_cast<double>(pixels));
  const auto own = static_cast<float>(factor);
  const float pale = static_cast<float>(1 - factor) * mean;
  ToneTable table;
  for (size_t value = 0; value < 256; ++value) {
    table[value] = to_byte(static_cast<float>(value) * own + pale);
  }
  apply_table(image, table);
}

void adjust_saturation(std::span<uint8_t> image, int64_t channels, double factor) {
  if (channels == 1) return;
  change_pixels(image, Saturate{static_cast<float>(factor), static_cast<float>(1 - factor)});
}

void adjust_hue(std::span<uint8_t> image, int64_t channels, double turn) {
  if (channels == 1) return;
  change_pixels(image, TurnHue{static_cast<float>(turn)});
}

}  // namespace brim::data
