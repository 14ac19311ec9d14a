#include "framework/data/to_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

#include "framework/data/normalize.h"

namespace brim::data {
namespace {

/// `values` on the device; on the CPU a view of them.
template <class T>
at::Tensor upload(std::span<const T> values, at::IntArrayRef sizes, at::ScalarType dtype,
                  at::Device device) {
  const auto options = at::TensorOptions().dtype(dtype);
  if (device.is_cpu()) return at::from_blob(const_cast<T*>(values.data()), sizes, options);
  const at::Tensor pinned = at::empty(sizes, options.pinned_memory(true));
  std::memcpy(pinned.data_ptr(), values.data(), values.size_bytes());
  return pinned.to(device, /*non_blocking=*/true);
}

}  // namespace

Normalizer make_normalizer(const Normalization& normalization, at::Device device) {
  const auto channels = static_cast<int64_t>(normalization.mean.size());
  Normalizer result = {at::empty({channels}, at::kFloat), at::empty({channels}, at::kFloat)};
  for (size_t c = 0; c < normalization.mean.size(); ++c) {
    result.scale.data_ptr<float>()[c] = static_cast<float>(1 / (255 * normalization.std[c]));
    result.bias.data_ptr<float>()[c] =
        static_cast<float>(-normalization.mean[c] / normalization.std[c]);
  }
  return {result.scale.to(device), result.bias.to(device)};
}

DeviceBatch to_device(const Batch& batch, const ImageShape& shape, const Normalizer& normalizer,
                      bool channels_last, at::ScalarType dtype) {
  const at::Device device = normalizer.scale.device();
  const at::Tensor pixels = upload(
      batch.pixels, {batch.count, shape.height, shape.width, shape.channels}, at::kByte, device);
  at::Tensor labels = upload(batch.labels, {batch.count}, at::kLong, device);
  if (device.is_cpu()) labels = labels.clone();
  const at::Tensor images =
      normalize_images(pixels, normalizer.scale, normalizer.bias, channels_last);
  return {images.to(dtype), labels};
}

}  // namespace brim::data
