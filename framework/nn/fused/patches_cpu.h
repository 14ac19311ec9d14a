// Patches of images as rows of a matrix, and back, on the CPU; see convolution.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "framework/nn/fused/convolution.h"

namespace brim::nn::cpu {

/// What a kernel sees, place by place.
struct Patches {
  std::array<int64_t, 4> image;   // N, C, H, W
  std::array<int64_t, 2> kernel;  // KH, KW
  ConvolutionSteps steps;

  /// False where the kernel is larger than the padded image, or a step is none.
  bool is_valid() const {
    for (const int side : {0, 1}) {
      if (steps.stride[side] < 1 || steps.padding[side] < 0 || steps.dilation[side] < 1 ||
          room(side) < 0) {
        return false;
      }
    }
    return true;
  }
  /// OH or OW, of what is_valid().
  int64_t places(int side) const { return room(side) / steps.stride[side] + 1; }
  int64_t rows() const { return image[0] * places(0) * places(1); }
  int64_t row_length() const { return kernel[0] * kernel[1] * image[1]; }
  /// Whether each row is one pixel of the image, in order.
  bool are_pixels() const {
    using Sides = std::array<int64_t, 2>;
    return kernel == Sides{1, 1} && steps.stride == Sides{1, 1} && steps.padding == Sides{0, 0};
  }

 private:
  /// By how much the kernel can move.
  int64_t room(int side) const {
    const int64_t reach = steps.dilation[side] * (kernel[side] - 1) + 1;
    return image[2 + side] + 2 * steps.padding[side] - reach;
  }
};

/// x as `patches` say, channels_last: [rows, KH · KW · C], zeros for what lies outside. A view
/// where the rows lie in x already.
at::Tensor patch_rows(const at::Tensor& x, const Patches& patches);

/// The gradient of patch_rows(), from that of its result: [N, C, H, W], channels_last. A pixel's
/// values, which the rows hold rounded, are added up in float32, or float64.
at::Tensor sum_of_patch_rows(const at::Tensor& rows, const Patches& patches);

}  // namespace brim::nn::cpu
