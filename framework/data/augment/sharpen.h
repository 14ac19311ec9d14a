// Sharpness: each pixel against its neighbours.
#pragma once

#include <cstdint>
#include <span>

#include "framework/data/dataset.h"

namespace brim::data {

/// Moves each value that has eight neighbours away from (factor > 1) or towards (factor < 1) the
/// mean of the nine, its own weight 5 of 13; the border stays. As
/// torchvision.transforms.v2.functional.adjust_sharpness on uint8 tensors (version 0.26), but for
/// rounding in the last place: 1 grey level at most. factor ≥ 0. In place.
void adjust_sharpness(std::span<uint8_t> image, const ImageShape& shape, double factor);

}  // namespace brim::data
