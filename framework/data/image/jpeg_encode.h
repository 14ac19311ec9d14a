// Pixels to a JPEG file, for data sets that are made smaller before training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/data/image/resize.h"

namespace brim::data {

/// A baseline JPEG of an RGB image with colour at half the resolution (4:2:0). `quality` is
/// libjpeg's, from 1 to 100. `name` is what errors call the image. Throws Error(kData) where the
/// image is larger than JPEG allows, Error(kResource) without memory.
std::vector<uint8_t> encode_jpeg(const Image& image, int quality, const std::string& name);

}  // namespace brim::data
