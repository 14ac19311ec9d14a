#include "framework/data/image_dataset.h"

#include <array>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/data/image.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, 2> kFilterWords = {"bilinear", "bicubic"};

class ImageDataset final : public ImageSamples {
 public:
  ImageDataset(std::unique_ptr<EncodedImages> images, const ImageOptions& options,
               const AugmentConfig& augment)
      : images_(std::move(images)), options_(options), augment_(augment) {}

  int64_t size() const override { return images_->size(); }
  ImageShape shape() const override { return {options_.image_size, options_.image_size, 3}; }
  int64_t classes() const override { return static_cast<int64_t>(images_->class_names().size()); }
  std::vector<std::string> class_names() const override { return images_->class_names(); }
  std::string name(int64_t index) const override { return images_->name(index); }
  int64_t label(int64_t index) const override { return images_->label(index); }
  std::span<const int64_t> shard_ends() const override { return images_->shard_ends(); }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    thread_local std::vector<uint8_t> buffer;
    const auto place = [&](int64_t height, int64_t width) {
      return random == nullptr
                 ? place_whole(height, width, shape(), options_.resize)
                 : place_randomly(height, width, shape(), options_.resize, augment_, *random);
    };
    draw_image(images_->bytes(index, buffer), images_->name(index), place,
               {.filter = options_.interpolation, .fast_decode = options_.fast_decode}, pixels);
    if (random != nullptr) augment_placed(shape(), augment_, *random, pixels);
    return images_->label(index);
  }

 private:
  std::unique_ptr<EncodedImages> images_;
  ImageOptions options_;
  AugmentConfig augment_;
};

}  // namespace

void ImageOptions::fields(recipe::Fields& f) {
  f.value("image_size", image_size, "height and width of what the model sees, in pixels",
          recipe::between(1, 4096));
  f.value("resize", resize,
          "length of the shorter side in pixels before the centre is cut out, for evaluation and "
          "for crops other than random_resized",
          recipe::between(1, 8192));
  f.choice("interpolation", interpolation, kFilterWords,
           "how pixels are resized, with antialiasing");
  f.value("fast_decode", fast_decode,
          "decode JPEG images at a fraction of their size where that is large enough, and their "
          "colour more coarsely: a few grey levels off, and faster");
}

void ImageOptions::check() const {
  if (resize < image_size) {
    throw Error(Exit::kRecipe, "[data]: expected 'resize' to be at least image_size ({}), found {}",
                image_size, resize);
  }
}

std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<EncodedImages> images,
                                            const ImageOptions& options,
                                            const AugmentConfig& augment) {
  return std::make_unique<ImageDataset>(std::move(images), options, augment);
}

}  // namespace brim::data
