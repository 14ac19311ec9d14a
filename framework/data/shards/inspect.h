// Looks at every image of a set: how many, how large, of which classes, and which can't be decoded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/data/sources/encoded_images.h"

namespace brim::data {

/// The least, the middle and the greatest of some numbers.
struct Spread {
  int64_t least = 0;
  int64_t median = 0;
  int64_t greatest = 0;
};

struct ClassCount {
  std::string name;
  int64_t images = 0;
};

struct Inspection {
  int64_t images = 0;
  int64_t bytes = 0;  // of all files that could be read
  Spread file_bytes;  // of them
  Spread height;      // of the images that could be decoded, in pixels
  Spread width;
  std::vector<ClassCount> classes;  // by label
  std::vector<std::string> broken;  // what is wrong with each image that can't be decoded
};

/// Decodes all images on `threads` threads. `report` is called now and then, from any of them, with
/// the number of images done. Throws Error(kStopped) on request; broken images are no error.
Inspection inspect(const EncodedImages& images, int64_t threads,
                   const std::function<void(int64_t)>& report = {});

}  // namespace brim::data
