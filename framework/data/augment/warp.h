// Changes of an image's geometry: shear, translation and rotation to the nearest pixel, black where
// the image ends. Which pixel is nearest is computed in float32 in the steps that
// torchvision.transforms.v2.functional (version 0.26) takes for uint8 tensors; where a point lies
// within rounding of halfway between two pixels, the choice may differ, as it does there between
// processors. Images are [height, width, channels] of at most 65,500 pixels a side, changed in
// place.
#pragma once

#include <cstdint>
#include <span>

#include "framework/data/dataset.h"

namespace brim::data {

/// Shifts each row by `slope` times its distance from the upper edge, to the left where slope > 0.
void shear_x(std::span<uint8_t> image, const ImageShape& shape, double slope);

/// Shifts each column by `slope` times its distance from the left edge, upwards where slope > 0.
void shear_y(std::span<uint8_t> image, const ImageShape& shape, double slope);

/// Moves the image to the right and down, or where negative to the left and up.
void translate(std::span<uint8_t> image, const ImageShape& shape, int64_t right, int64_t down);

/// Turns the image about its centre, counter-clockwise where degrees > 0.
void rotate(std::span<uint8_t> image, const ImageShape& shape, double degrees);

}  // namespace brim::data
