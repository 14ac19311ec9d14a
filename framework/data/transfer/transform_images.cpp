#include "framework/data/transfer/transform_images.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "framework/data/augment/image_change.h"

namespace brim::data {
namespace {

constexpr int64_t kGrain = 1 << 15;  // values that are worth a thread
constexpr int64_t kLongRow = 512;    // values

void check(const at::Tensor& pixels, const at::Tensor& scale, const at::Tensor& bias,
           const std::optional<at::Tensor>& changes, at::ScalarType dtype) {
  TORCH_CHECK(pixels.scalar_type() == at::kByte && pixels.dim() == 4 && pixels.is_contiguous(),
              "transform_images: expected contiguous uint8 pixels [N, H, W, C], found ",
              pixels.scalar_type(), " ", pixels.sizes());
  for (const at::Tensor& t : {scale, bias}) {
    TORCH_CHECK(t.scalar_type() == at::kFloat && t.is_contiguous() && t.dim() == 1 &&
                    t.size(0) == pixels.size(3),
                "transform_images: expected contiguous float32 scale and bias [", pixels.size(3),
                "], found ", t.scalar_type(), " ", t.sizes());
  }
  TORCH_CHECK(!changes || (changes->scalar_type() == at::kInt && changes->is_contiguous() &&
                           changes->dim() == 2 && changes->size(0) == pixels.size(0) &&
                           changes->size(1) == kChangeInts),
              "transform_images: expected contiguous int32 changes [", pixels.size(0), ", ",
              kChangeInts, "], found ", changes->scalar_type(), " ", changes->sizes());
  TORCH_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf,
              "transform_images: expected float32, bfloat16 or float16, found ", dtype);
}

/// A batch as the kernel sees it.
struct Images {
  const uint8_t* pixels;
  const float* scale;
  const float* bias;
  const ImageChange* changes;  // null: none
  int64_t count, height, width, channels;

  int64_t row() const { return width * channels; }
  ImageChange change(int64_t image) const {
    return changes == nullptr ? ImageChange{} : changes[image];
  }
};

/// What a thread works with: memory for rows.
struct Rows {
  explicit Rows(const Images& images)
      : own(images.row()), other(images.row()), mirrored(images.row()) {
    for (int64_t x = 0; x < images.width; ++x) {
      scale.insert(scale.end(), images.scale, images.scale + images.channels);
      bias.insert(bias.end(), images.bias, images.bias + images.channels);
    }
  }
  std::vector<float> own, other;
  std::vector<uint8_t> mirrored;
  std::vector<float> scale, bias;  // of each value of a row
};

/// Row y of an image, normalised, mirrored and erased.
void make_row(const Images& images, int64_t image, const ImageChange& change, int64_t y, Rows& rows,
              float* row) {
  const int64_t channels = images.channels;
  const uint8_t* pixels = images.pixels + (image * images.height + y) * images.row();
  if (change.flip != 0) {
    uint8_t* to = rows.mirrored.data() + images.row();
    for (const uint8_t* pixel = pixels; pixel < pixels + images.row(); pixel += channels) {
      to = std::copy_n(pixel, channels, to - channels) - channels;
    }
    pixels = to;
  }
  const float* scale = rows.scale.data();
  const float* bias = rows.bias.data();
  for (int64_t i = 0; i < images.row(); ++i) {
    row[i] = static_cast<float>(pixels[i]) * scale[i] + bias[i];
  }
  if (y >= change.erased.top && y < change.erased.bottom) {
    const int64_t left = std::clamp<int64_t>(change.erased.left, 0, images.width);
    const int64_t right = std::clamp<int64_t>(change.erased.right, left, images.width);
    std::fill(row + left * channels, row + right * channels, 0.0F);
  }
}

/// Mixes the partner's row y into `row`.
void mix_row(const Images& images, const ImageChange& change, int64_t y, Rows& rows, float* row) {
  if (y < change.mixed.top || y >= change.mixed.bottom) return;
  if (change.partner < 0 || change.partner >= images.count) return;
  float* other = rows.other.data();
  make_row(images, change.partner, images.change(change.partner), y, rows, other);
  const int64_t left = std::clamp<int64_t>(change.mixed.left, 0, images.width);
  const int64_t right = std::clamp<int64_t>(change.mixed.right, left, images.width);
  const float rest = 1 - change.own;
  for (int64_t i = left * images.channels; i < right * images.channels; ++i) {
    row[i] = row[i] * change.own + other[i] * rest;
  }
}

/// Stores row y of an image, [W, C], where it belongs.
template <class T>
void store_row(const Images& images, int64_t image, int64_t y, const float* row, bool channels_last,
               T* out) {
  if (channels_last) {
    T* to = out + (image * images.height + y) * images.row();
    for (int64_t i = 0; i < images.row(); ++i) to[i] = static_cast<T>(row[i]);
    return;
  }
  const int64_t area = images.height * images.width;
  for (int64_t c = 0; c < images.channels; ++c) {
    T* to = out + (image * images.channels + c) * area + y * images.width;
    for (int64_t x = 0; x < images.width; ++x) {
      to[x] = static_cast<T>(row[x * images.channels + c]);
    }
  }
}

/// The same with two rows in one, as often as they are short: nothing but a change looks at where a
/// row ends, and each row costs time of its own.
Images with_long_rows(Images images) {
  while (images.changes == nullptr && images.height % 2 == 0 && images.row() < kLongRow) {
    images.height /= 2;
    images.width *= 2;
  }
  return images;
}

template <class T>
void run(const Images& images, bool channels_last, T* out) {
  const int64_t grain = kGrain / images.row() + 1;
  at::parallel_for(0, images.count * images.height, grain, [&](int64_t begin, int64_t end) {
    Rows rows(images);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / images.height;
      const int64_t y = i % images.height;
      const ImageChange change = images.change(image);
      float* row = rows.own.data();
      // A row that is stored as it is made needs no copy.
      const bool in_place = std::is_same_v<T, float> && (channels_last || images.channels == 1);
      if (in_place) row = reinterpret_cast<float*>(out) + i * images.row();
      make_row(images, image, change, y, rows, row);
      mix_row(images, change, y, rows, row);
      if (!in_place) store_row(images, image, y, row, channels_last, out);
    }
  });
}

at::Tensor transform_images_cpu(const at::Tensor& pixels, const at::Tensor& scale,
                                const at::Tensor& bias, const std::optional<at::Tensor>& changes,
                                bool channels_last, at::ScalarType dtype) {
  check(pixels, scale, bias, changes, dtype);
  at::Tensor result =
      at::empty({pixels.size(0), pixels.size(3), pixels.size(1), pixels.size(2)},
                scale.options().dtype(dtype),
                channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  if (result.numel() == 0) return result;
  const Images images = with_long_rows(
      {.pixels = pixels.const_data_ptr<uint8_t>(),
       .scale = scale.const_data_ptr<float>(),
       .bias = bias.const_data_ptr<float>(),
       .changes = changes ? static_cast<const ImageChange*>(changes->const_data_ptr()) : nullptr,
       .count = pixels.size(0),
       .height = pixels.size(1),
       .width = pixels.size(2),
       .channels = pixels.size(3)});
  if (dtype == at::kFloat) {
    run(images, channels_last, result.data_ptr<float>());
  } else if (dtype == at::kBFloat16) {
    run(images, channels_last, result.data_ptr<at::BFloat16>());
  } else {
    run(images, channels_last, result.data_ptr<at::Half>());
  }
  return result;
}

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "transform_images(Tensor pixels, Tensor scale, Tensor bias, Tensor? changes, "
      "bool channels_last, ScalarType dtype) -> Tensor");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) { library.impl("transform_images", transform_images_cpu); }

}  // namespace

at::Tensor transform_images(const at::Tensor& pixels, const at::Tensor& scale,
                            const at::Tensor& bias, const std::optional<at::Tensor>& changes,
                            bool channels_last, at::ScalarType dtype) {
  static const auto operation =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("brim::transform_images", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const std::optional<at::Tensor>&, bool, at::ScalarType)>();
  return operation.call(pixels, scale, bias, changes, channels_last, dtype);
}

}  // namespace brim::data
