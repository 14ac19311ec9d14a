#include "framework/data/sources/image_dataset.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/data/image/image.h"
#include "framework/data/image/image_cache.h"
#include "framework/data/loading/stages.h"

namespace brim::data {
namespace {

constexpr std::array<std::string_view, 2> kFilterWords = {"bilinear", "bicubic"};
constexpr std::array<std::string_view, 2> kDecodeWords = {"cpu", "gpu"};
constexpr std::array<std::string_view, 3> kCacheWords = {"none", "encoded", "decoded"};

constexpr int64_t kTogether = 32;                      // enough for the several decoders of a GPU
constexpr int64_t kTogetherBytes = int64_t{64} << 20;  // of files

class ImageDataset final : public ImageSamples {
 public:
  ImageDataset(std::unique_ptr<EncodedImages> images, const ImageOptions& options,
               const AugmentConfig& augment)
      : images_(std::move(images)), options_(options), augment_(augment) {
    if (options.cache != CacheKind::kNone) {
      cache_ = std::make_unique<ImageCache>(images_->size(), options.cache_bytes());
    }
  }

  int64_t size() const override { return images_->size(); }
  ImageShape shape() const override { return {options_.image_size, options_.image_size, 3}; }
  int64_t classes() const override { return static_cast<int64_t>(images_->class_names().size()); }
  std::vector<std::string> class_names() const override { return images_->class_names(); }
  std::string name(int64_t index) const override { return images_->name(index); }
  int64_t label(int64_t index) const override { return images_->label(index); }
  void check_files() const override { images_->check_files(); }
  std::span<const int64_t> shard_ends() const override { return images_->shard_ends(); }

  int64_t samples_together() const override { return options_.on_gpu ? kTogether : 1; }

  void read_together(std::span<SampleRequest> requests,
                     const device::DrawJpegs& draw) const override {
    std::vector<OpenImage> images;
    int64_t bytes = 0;
    const auto finish = [&] {
      draw_on_device(images, draw);
      for (OpenImage& image : images) {
        if (!image.request->is_read) image.request->is_read = draw_here(image);
      }
      images.clear();
      bytes = 0;
    };
    for (SampleRequest& request : requests) {
      OpenImage& image = images.emplace_back();
      image.request = &request;
      if (open(image)) {
        bytes += std::ssize(image.file);
      } else {
        images.pop_back();
      }
      if (bytes > kTogetherBytes) finish();
    }
    finish();
  }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    if (options_.cache == CacheKind::kDecoded) {
      draw_decoded(index, random, pixels);
    } else {
      draw_file(encoded(index), index, random, pixels);
    }
    return images_->label(index);
  }

 private:
  CropPlan place(int64_t height, int64_t width, RandomStream* random) const {
    return random == nullptr
               ? place_whole(height, width, shape(), options_.resize)
               : place_randomly(height, width, shape(), options_.resize, augment_, *random);
  }

  void draw_file(std::span<const uint8_t> file, int64_t index, RandomStream* random,
                 std::span<uint8_t> pixels) const {
    const auto place_it = [&](int64_t height, int64_t width) {
      return place(height, width, random);
    };
    draw_image(file, name(index), place_it,
               {.filter = options_.interpolation, .fast_decode = options_.fast_decode}, pixels);
    if (random != nullptr) augment_placed(shape(), augment_, *random, pixels);
  }

  /// What read_together() works on.
  struct OpenImage {
    SampleRequest* request = nullptr;
    std::vector<uint8_t> memory;
    std::span<const uint8_t> file;
  };

  /// False where it can't be read.
  bool open(OpenImage& image) const {
    enter_stage(Stage::kRead);
    try {
      image.file = encoded(image.request->sample, image.memory);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void draw_on_device(std::span<OpenImage> images, const device::DrawJpegs& draw) const {
    enter_stage(Stage::kDecode);
    std::vector<device::DrawnJpeg> jpegs;
    struct Drawn {
      SampleRequest* request;
      std::optional<RandomStream> random;  // as the choice of a crop left it
    };
    std::vector<Drawn> drawn;
    for (OpenImage& image : images) {
      const auto size = plain_jpeg_size(image.file);
      if (!size) continue;
      std::optional<RandomStream> random = image.request->random;
      const CropPlan plan = place(size->height, size->width, random ? &*random : nullptr);
      jpegs.push_back({.file = image.file,
                       .height = static_cast<int32_t>(size->height),
                       .width = static_cast<int32_t>(size->width),
                       .down = weights_of(plan.rows(), options_.interpolation),
                       .across = weights_of(plan.columns(), options_.interpolation),
                       .pixels = image.request->bytes});
      drawn.push_back({image.request, random});
    }
    if (!jpegs.empty()) draw(jpegs);
    for (size_t i = 0; i < jpegs.size(); ++i) {
      auto& [request, random] = drawn[i];
      request->is_read = jpegs[i].is_drawn;
      if (!request->is_read || !random) continue;
      augment_placed(shape(), augment_, *random, request->bytes);
    }
  }

  /// False where it can't be read.
  bool draw_here(const OpenImage& image) const {
    const SampleRequest& request = *image.request;
    std::optional<RandomStream> random = request.random;
    try {
      draw_file(image.file, request.sample, random ? &*random : nullptr, request.bytes);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  std::span<const uint8_t> encoded(int64_t index) const {
    thread_local std::vector<uint8_t> buffer;
    return encoded(index, buffer);
  }

  /// From the cache or from where the images are; valid until `buffer` is used again.
  std::span<const uint8_t> encoded(int64_t index, std::vector<uint8_t>& buffer) const {
    if (options_.cache != CacheKind::kEncoded) return images_->bytes(index, buffer);
    if (const CachedImage* cached = cache_->find(index)) return cached->bytes;
    const std::span<const uint8_t> bytes = images_->bytes(index, buffer);
    cache_->add(index, {.bytes = bytes});
    return bytes;
  }

  void draw_decoded(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const {
    const auto draw = [&](const ImageView& image) {
      enter_stage(Stage::kResize);
      resize(image, place(image.height, image.width, random), options_.interpolation, pixels);
      if (random != nullptr) augment_placed(shape(), augment_, *random, pixels);
    };
    if (const CachedImage* cached = cache_->find(index)) {
      draw({cached->bytes.data(), cached->height, cached->width, 3, cached->width * 3});
      return;
    }
    const std::span<const uint8_t> bytes = encoded(index);
    enter_stage(Stage::kDecode);
    const Image image = decode_image(bytes, name(index));
    cache_->add(index, {image.height, image.width, image.pixels});
    draw(view(image));
  }

  std::unique_ptr<EncodedImages> images_;
  std::unique_ptr<ImageCache> cache_;  // null: none
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
  f.choice("decode", on_gpu, kDecodeWords,
           "where JPEG images are decoded and resized: gpu takes NVIDIA's nvJPEG, and the CPU for "
           "files that it doesn't take; a few grey levels off, at edges between colours more");
  f.value("fast_decode", fast_decode,
          "decode JPEG images at a fraction of their size where that is large enough, and their "
          "colour more coarsely: a few grey levels off, at edges between colours more, and faster");
  f.choice("cache", cache, kCacheWords,
           "keep training images in memory, as their files hold them or decoded");
  f.value("cache_gib", cache_gib, "memory for that, in GiB; images beyond it are read each time",
          recipe::Range{.low = 0, .high = 1 << 20, .low_open = true});
}

void ImageOptions::check() const {
  if (cache == CacheKind::kNone && cache_gib != ImageOptions{}.cache_gib) {
    log::warning("data.cache_gib has no effect: cache is \"none\"");
  }
  if (cache == CacheKind::kDecoded && on_gpu) {
    throw Error(Exit::kRecipe,
                "[data]: expected cache = \"none\" or \"encoded\" with decode = "
                "\"gpu\", which keeps no decoded images; found \"decoded\"");
  }
  if (fast_decode && on_gpu) {
    log::warning("data.fast_decode has no effect on images that decode = \"gpu\" decodes");
  }
  if (cache == CacheKind::kDecoded && fast_decode) {
    log::warning("data.fast_decode has no effect on training: cache is \"decoded\"");
  }
  check_resize(image_size);
}

void ImageOptions::check_resize(int64_t side) const {
  if (resize >= side) return;
  throw Error(Exit::kRecipe, "[data]: expected 'resize' to be at least image_size ({}), found {}",
              side, resize);
}

int64_t ImageOptions::cache_bytes() const {
  if (cache == CacheKind::kNone) return 0;
  return static_cast<int64_t>(cache_gib * static_cast<double>(int64_t{1} << 30));
}

ImageOptions ImageOptions::for_evaluation() const {
  ImageOptions options = *this;
  options.cache = CacheKind::kNone;
  return options;
}

std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<EncodedImages> images,
                                            const ImageOptions& options,
                                            const AugmentConfig& augment) {
  return std::make_unique<ImageDataset>(std::move(images), options, augment);
}

}  // namespace brim::data
