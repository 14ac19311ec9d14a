#include "framework/data/normalize.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace brim::data {
namespace {

constexpr int64_t kGrain = 1 << 15;  // values that are worth a thread

void check(const at::Tensor& pixels, const at::Tensor& scale, const at::Tensor& bias) {
  TORCH_CHECK(pixels.scalar_type() == at::kByte && pixels.dim() == 4 && pixels.is_contiguous(),
              "normalize_images: expected contiguous uint8 pixels [N, H, W, C], found ",
              pixels.scalar_type(), " ", pixels.sizes());
  for (const at::Tensor& t : {scale, bias}) {
    TORCH_CHECK(t.scalar_type() == at::kFloat && t.is_contiguous() && t.dim() == 1 &&
                    t.size(0) == pixels.size(3),
                "normalize_images: expected contiguous float32 scale and bias [", pixels.size(3),
                "], found ", t.scalar_type(), " ", t.sizes());
  }
}

/// [rows of pixels, C] to the same layout.
void normalize_interleaved(const uint8_t* from, float* to, const float* scale, const float* bias,
                           int64_t pixels, int64_t channels) {
  at::parallel_for(0, pixels, kGrain / channels + 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin * channels; i < end * channels; i += channels) {
      for (int64_t c = 0; c < channels; ++c) {
        to[i + c] = static_cast<float>(from[i + c]) * scale[c] + bias[c];
      }
    }
  });
}

/// [planes / C, area, C] to [planes, area].
void normalize_planar(const uint8_t* from, float* to, const float* scale, const float* bias,
                      int64_t planes, int64_t area, int64_t channels) {
  at::parallel_for(0, planes, kGrain / area + 1, [=](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t c = plane % channels;
      const uint8_t* pixel = from + plane / channels * area * channels + c;
      float* out = to + plane * area;
      for (int64_t i = 0; i < area; ++i) {
        out[i] = static_cast<float>(pixel[i * channels]) * scale[c] + bias[c];
      }
    }
  });
}

at::Tensor normalize_images_cpu(const at::Tensor& pixels, const at::Tensor& scale,
                                const at::Tensor& bias, bool channels_last) {
  check(pixels, scale, bias);
  const int64_t batch = pixels.size(0);
  const int64_t area = pixels.size(1) * pixels.size(2);
  const int64_t channels = pixels.size(3);
  at::Tensor images =
      at::empty({batch, channels, pixels.size(1), pixels.size(2)}, scale.options(),
                channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  if (images.numel() == 0) return images;
  const auto* from = pixels.const_data_ptr<uint8_t>();
  auto* to = images.data_ptr<float>();
  const auto* s = scale.const_data_ptr<float>();
  const auto* b = bias.const_data_ptr<float>();
  if (channels_last) {
    normalize_interleaved(from, to, s, b, batch * area, channels);
  } else {
    normalize_planar(from, to, s, b, batch * channels, area, channels);
  }
  return images;
}

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def(
      "normalize_images(Tensor pixels, Tensor scale, Tensor bias, bool channels_last) -> Tensor");
}

TORCH_LIBRARY_IMPL(brim, CPU, library) { library.impl("normalize_images", normalize_images_cpu); }

}  // namespace

at::Tensor normalize_images(const at::Tensor& pixels, const at::Tensor& scale,
                            const at::Tensor& bias, bool channels_last) {
  static const auto operation =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("brim::normalize_images", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool)>();
  return operation.call(pixels, scale, bias, channels_last);
}

}  // namespace brim::data
