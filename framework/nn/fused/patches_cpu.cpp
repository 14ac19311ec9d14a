#include "framework/nn/fused/patches_cpu.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "framework/nn/fused/cpu.h"

namespace brim::nn::cpu {
namespace {

struct Place {
  int64_t image, y, x;
};

/// The index-th of images of that height and width.
Place place_at(int64_t index, int64_t height, int64_t width) {
  return {index / (height * width), index / width % height, index % width};
}

/// The place at which the kernel's tap lies on `pixel`; -1 where there is none.
int64_t place_of(const Patches& p, int side, int64_t pixel, int64_t tap) {
  const int64_t first = pixel + p.steps.padding[side] - tap * p.steps.dilation[side];
  if (first < 0 || first % p.steps.stride[side] != 0) return -1;
  const int64_t place = first / p.steps.stride[side];
  return place < p.places(side) ? place : -1;
}

}  // namespace

at::Tensor patch_rows(const at::Tensor& x, const Patches& p) {
  const int64_t channels = p.image[1], height = p.image[2], width = p.image[3];
  const at::Tensor pixels = x.permute({0, 2, 3, 1}).view({p.image[0] * height * width, channels});
  if (p.are_pixels()) return pixels;
  at::Tensor rows = at::empty({p.rows(), p.row_length()}, x.options());
  const auto* from = data<std::byte>(pixels);
  auto* to = writable<std::byte>(rows);
  const int64_t bytes = channels * static_cast<int64_t>(x.element_size());
  const int64_t taps = p.kernel[0] * p.kernel[1], wide = p.places(1), high = p.places(0);
  at::parallel_for(0, p.rows(), grain_of(p.row_length()), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Place place = place_at(row, high, wide);
      const int64_t first_y = place.y * p.steps.stride[0] - p.steps.padding[0];
      const int64_t first_x = place.x * p.steps.stride[1] - p.steps.padding[1];
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t in_y = first_y + tap / p.kernel[1] * p.steps.dilation[0];
        const int64_t in_x = first_x + tap % p.kernel[1] * p.steps.dilation[1];
        std::byte* out = to + (row * taps + tap) * bytes;
        if (in_y < 0 || in_y >= height || in_x < 0 || in_x >= width) {
          std::fill_n(out, bytes, std::byte{0});
        } else {
          std::copy_n(from + ((place.image * height + in_y) * width + in_x) * bytes, bytes, out);
        }
      }
    }
  });
  return rows;
}

at::Tensor sum_of_patch_rows(const at::Tensor& rows, const Patches& p) {
  const int64_t images = p.image[0], channels = p.image[1], height = p.image[2], width = p.image[3];
  at::Tensor x =
      p.are_pixels() ? rows : at::empty({images * height * width, channels}, rows.options());
  const at::Tensor result = x.view({images, height, width, channels}).permute({0, 3, 1, 2});
  if (p.are_pixels()) return result;
  const int64_t taps = p.kernel[0] * p.kernel[1], wide = p.places(1), high = p.places(0);
  with_format_of("convolution", rows, [&]<class S>() {
    const S* from = data<S>(rows);
    S* to = writable<S>(x);
    at::parallel_for(0, x.size(0), grain_of(taps * channels), [&](int64_t begin, int64_t end) {
      std::vector<Wide<S>> sums(static_cast<size_t>(channels));
      for (int64_t pixel = begin; pixel < end; ++pixel) {
        const Place at = place_at(pixel, height, width);
        std::ranges::fill(sums, 0);
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t y = place_of(p, 0, at.y, tap / p.kernel[1]);
          const int64_t x_place = place_of(p, 1, at.x, tap % p.kernel[1]);
          if (y < 0 || x_place < 0) continue;
          const S* part = from + (((at.image * high + y) * wide + x_place) * taps + tap) * channels;
          BRIM_NO_ALIAS
          for (int64_t c = 0; c < channels; ++c) sums[c] += loops::wide(part[c]);
        }
        S* out = to + pixel * channels;
        BRIM_NO_ALIAS
        for (int64_t c = 0; c < channels; ++c) loops::store(sums[c], out + c);
      }
    });
  });
  return result;
}

}  // namespace brim::nn::cpu
