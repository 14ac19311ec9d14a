#include "framework/data/augment/tone.h"

#include <algorithm>
#include <numeric>

namespace brim::data {
namespace {

constexpr int64_t kMaxChannels = 3;

using Histogram = std::array<int32_t, 256>;

template <class Tone>
ToneTable make_table(Tone tone) {
  ToneTable table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<size_t>(value)] = static_cast<uint8_t>(tone(value));
  }
  return table;
}

/// Cut to 0…255, the fraction dropped.
uint8_t to_byte(float value) { return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F)); }

Histogram count_values(std::span<const uint8_t> image, int64_t channel, int64_t channels) {
  // Two counters a value: neighbours are often equal, and a counter can't be raised every cycle.
  std::array<Histogram, 2> halves = {};
  const uint8_t* value = image.data() + channel;
  const int64_t pixels = static_cast<int64_t>(image.size()) / channels;
  for (int64_t i = 0; i + 1 < pixels; i += 2, value += 2 * channels) {
    ++halves[0][*value];
    ++halves[1][value[channels]];
  }
  if (pixels % 2 == 1) ++halves[0][*value];
  for (size_t v = 0; v < 256; ++v) halves[0][v] += halves[1][v];
  return halves[0];
}

ToneTable autocontrast_table(const Histogram& counts) {
  const auto present = [](int32_t count) { return count > 0; };
  const auto least = static_cast<float>(std::ranges::find_if(counts, present) - counts.begin());
  const auto most =
      static_cast<float>(counts.rend() - std::find_if(counts.rbegin(), counts.rend(), present) - 1);
  if (least == most) return make_table([](int value) { return value; });
  const float step = (most - least) * static_cast<float>(1.0 / 255);
  return make_table([&](int value) { return to_byte((static_cast<float>(value) - least) / step); });
}

ToneTable equalize_table(const Histogram& counts) {
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](int32_t n) { return n > 0; });
  const int32_t pixels = std::accumulate(counts.begin(), counts.end(), int32_t{0});
  const int32_t step = (pixels - *last) / 255;
  if (step == 0) return make_table([](int value) { return value; });
  int32_t below = step / 2;
  return make_table([&](int value) {
    const int32_t level = below / step;
    below += counts[static_cast<size_t>(value)];
    return std::min(level, 255);
  });
}

template <class MakeTable>
void apply_by_channel(std::span<uint8_t> image, int64_t channels, MakeTable make) {
  if (channels == 1) return apply_table(image, make(count_values(image, 0, 1)));
  std::array<ToneTable, kMaxChannels> tables;
  for (int64_t c = 0; c < kMaxChannels; ++c) {
    tables[static_cast<size_t>(c)] = make(count_values(image, c, kMaxChannels));
  }
  for (size_t i = 0; i + 2 < image.size(); i += 3) {
    image[i] = tables[0][image[i]];
    image[i + 1] = tables[1][image[i + 1]];
    image[i + 2] = tables[2][image[i + 2]];
  }
}

}  // namespace

void apply_table(std::span<uint8_t> image, const ToneTable& table) {
  for (uint8_t& value : image) value = table[value];
}

void adjust_brightness(std::span<uint8_t> image, double factor) {
  const auto by = static_cast<float>(factor);
  apply_table(image,
              make_table([&](int value) { return to_byte(static_cast<float>(value) * by); }));
}

void posterize(std::span<uint8_t> image, int bits) {
  const int mask = 0xff00 >> bits & 0xff;
  apply_table(image, make_table([&](int value) { return value & mask; }));
}

void solarize(std::span<uint8_t> image, double threshold) {
  const auto from = static_cast<float>(threshold);
  apply_table(image, make_table([&](int value) {
                return static_cast<float>(value) >= from ? 255 - value : value;
              }));
}

void autocontrast(std::span<uint8_t> image, int64_t channels) {
  if (!image.empty()) apply_by_channel(image, channels, autocontrast_table);
}

void equalize(std::span<uint8_t> image, int64_t channels) {
  if (!image.empty()) apply_by_channel(image, channels, equalize_table);
}

}  // namespace brim::data
