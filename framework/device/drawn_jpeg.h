// What the GPU decodes and resizes in one go: CudaBackend::draw_jpegs().
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace brim::device {

/// Resizing along one axis by weighted sums in fixed point, of 14 fractional bits.
struct AxisWeights {
  std::vector<int32_t> runs;  // [outputs, 2]: the first pixel that an output is made of, how many
  std::vector<int32_t> weights;  // [outputs, stride]
  int32_t stride = 0;
};

struct DrawnJpeg {
  std::span<const uint8_t> file;
  int32_t height = 0, width = 0;  // of its image, as its header has them
  AxisWeights down, across;       // first of its rows, then of its columns
  std::span<uint8_t> pixels;      // [outputs of down, outputs of across, 3]: RGB
  bool is_drawn = false;          // set by the call: whether pixels hold the image
};

/// Images of one call have the same number of outputs. Leaves alone which the device's decoder does
/// not take. Several threads may call it at once.
using DrawJpegs = std::function<void(std::span<DrawnJpeg>)>;

}  // namespace brim::device
