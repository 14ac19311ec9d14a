#include "framework/data/image_dataset.h"

#include <utility>

#include "framework/base/error.h"
#include "framework/data/image.h"

namespace brim::data {
namespace {

class ImageDataset final : public ImageSamples {
 public:
  ImageDataset(std::unique_ptr<EncodedImages> images, const ImageSize& size,
               const AugmentConfig& augment)
      : images_(std::move(images)),
        size_(size.image_size),
        resize_(size.resize),
        augment_(augment) {}

  int64_t size() const override { return images_->size(); }
  ImageShape shape() const override { return {size_, size_, 3}; }
  int64_t classes() const override { return static_cast<int64_t>(images_->class_names().size()); }
  std::vector<std::string> class_names() const override { return images_->class_names(); }
  std::string name(int64_t index) const override { return images_->name(index); }
  int64_t label(int64_t index) const override { return images_->label(index); }
  std::span<const int64_t> shard_ends() const override { return images_->shard_ends(); }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    thread_local std::vector<uint8_t> buffer;
    const Image image = decode_image(images_->bytes(index, buffer), images_->name(index));
    if (random == nullptr) {
      fit_image(view(image), shape(), resize_, pixels);
    } else {
      augment_image(view(image), shape(), resize_, augment_, *random, pixels);
    }
    return images_->label(index);
  }

 private:
  std::unique_ptr<EncodedImages> images_;
  int64_t size_;
  int64_t resize_;
  AugmentConfig augment_;
};

}  // namespace

void ImageSize::fields(recipe::Fields& f) {
  f.value("image_size", image_size, "height and width of what the model sees, in pixels",
          recipe::between(1, 4096));
  f.value("resize", resize,
          "length of the shorter side in pixels before the centre is cut out, for evaluation and "
          "for crops other than random_resized",
          recipe::between(1, 8192));
}

void ImageSize::check() const {
  if (resize < image_size) {
    throw Error(Exit::kRecipe, "[data]: expected 'resize' to be at least image_size ({}), found {}",
                image_size, resize);
  }
}

std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<EncodedImages> images,
                                            const ImageSize& size, const AugmentConfig& augment) {
  return std::make_unique<ImageDataset>(std::move(images), size, augment);
}

}  // namespace brim::data
