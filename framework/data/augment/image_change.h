// What one pass over a batch does to an image besides normalising it. mix.h draws it, the operator
// brim::transform_images (transform_images.h) applies it. Free of everything, for the CUDA kernel.
#pragma once

#include <cstdint>

namespace brim::data {

/// Rows top … bottom - 1, columns left … right - 1.
struct PixelRange {
  int32_t top = 0;
  int32_t left = 0;
  int32_t bottom = 0;
  int32_t right = 0;
};

/// In this order: the image is mirrored, pixels are erased, another image is mixed in.
struct ImageChange {
  int32_t flip = 0;      // 1: left and right change places
  PixelRange erased;     // 0 after normalising, that is the mean
  PixelRange mixed;      // where another image, mirrored and erased by its own change, comes in
  int32_t partner = -1;  // that image's index in the batch
  float own = 1;         // there: own · this image + (1 - own) · the other one
};

/// The operator takes changes as an int32 tensor [N, kChangeInts]: their bytes.
inline constexpr int64_t kChangeInts = 11;
static_assert(sizeof(ImageChange) == kChangeInts * sizeof(int32_t));

}  // namespace brim::data
