#include "framework/data/sources/picture_files.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/data/image/image.h"
#include "framework/data/sources/image_dataset.h"

namespace brim::data {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 30;

class PictureFiles final : public ImageSamples {
 public:
  PictureFiles(std::vector<std::filesystem::path> files, const ImageShape& shape,
               const ImageOptions& options)
      : files_(std::move(files)), shape_(shape), options_(options) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  ImageShape shape() const override { return shape_; }
  int64_t classes() const override { return 1; }
  std::vector<std::string> class_names() const override { return numbered_classes(1); }
  std::string name(int64_t index) const override { return file(index).string(); }
  int64_t label(int64_t /*index*/) const override { return 0; }

  int64_t read(int64_t index, RandomStream*, std::span<uint8_t> pixels) const override {
    thread_local std::vector<uint8_t> encoded, colours;
    read_file(file(index), Exit::kData, kMaxBytes, encoded);
    const auto place = [&](int64_t height, int64_t width) {
      return place_whole(height, width, {shape_.height, shape_.width, 3}, options_.resize);
    };
    const DrawOptions how = {.filter = options_.interpolation, .fast_decode = options_.fast_decode};
    if (shape_.channels == 3) {
      draw_image(encoded, name(index), place, how, pixels);
      return 0;
    }
    colours.resize(3 * pixels.size());
    draw_image(encoded, name(index), place, how, colours);
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = brightness(colours[3 * i], colours[3 * i + 1], colours[3 * i + 2]);
    }
    return 0;
  }

 private:
  const std::filesystem::path& file(int64_t index) const {
    return files_[static_cast<size_t>(index)];
  }
  /// ITU-R BT.601, as Pillow converts to "L".
  static uint8_t brightness(uint8_t red, uint8_t green, uint8_t blue) {
    return static_cast<uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
  }

  std::vector<std::filesystem::path> files_;
  ImageShape shape_;
  ImageOptions options_;
};

ImageOptions options_of(const SourceConfig& source, const ImageShape& shape) {
  if (const ImageOptions* options = source.image_options()) {
    options->check_resize(std::max(shape.height, shape.width));
    return *options;
  }
  return {.resize = std::max(shape.height, shape.width)};
}

}  // namespace

std::unique_ptr<ImageSamples> open_pictures(std::vector<std::filesystem::path> files,
                                            const ImageShape& shape, const SourceConfig& source) {
  if (shape.channels != 1 && shape.channels != 3) {
    throw Error(Exit::kRecipe, "the model takes images of {} channels; image files give 1 or 3",
                shape.channels);
  }
  return std::make_unique<PictureFiles>(std::move(files), shape, options_of(source, shape));
}

}  // namespace brim::data
