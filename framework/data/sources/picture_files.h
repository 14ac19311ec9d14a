// JPEG and PNG files that are named one by one, as samples of the shape that a source has in
// evaluation: for predictions.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "framework/data/source.h"

namespace brim::data {

/// A file's path is its name. Images are resized and cut as `source` does it, where that reads
/// image files; for other sources their shorter side becomes the shape's longer one. Of one
/// channel, the shape takes their brightness. Throws Error(kRecipe) for shapes of other numbers of
/// channels than 1 and 3; reading throws Error(kData) naming the file.
std::unique_ptr<ImageSamples> open_pictures(std::vector<std::filesystem::path> files,
                                            const ImageShape& shape, const SourceConfig& source);

}  // namespace brim::data
