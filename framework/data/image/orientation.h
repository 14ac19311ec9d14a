// EXIF orientation: which way up a camera held its image (Exif 2.32, tag 0x0112).
#pragma once

#include <cstdint>
#include <span>

#include "framework/data/image/resize.h"

namespace brim::data {

/// The orientation, 1 to 8, in a TIFF block as EXIF holds it; 1 (upright) where there is none or
/// the block makes no sense.
int exif_orientation(std::span<const uint8_t> tiff);

/// Turns and mirrors an image so that it stands upright.
Image apply_orientation(Image image, int orientation);

}  // namespace brim::data
