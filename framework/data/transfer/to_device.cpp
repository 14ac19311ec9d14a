#include "framework/data/transfer/to_device.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/data/augment/mix.h"
#include "framework/data/transfer/transform_images.h"

namespace brim::data {
namespace {

/// `values` on the device; on the CPU a view of them. Pinned ones are copied from where they are.
template <class T>
at::Tensor upload(std::span<const T> values, at::IntArrayRef sizes, at::ScalarType dtype,
                  at::Device device) {
  const auto options = at::TensorOptions().dtype(dtype);
  const at::Tensor view = at::from_blob(const_cast<T*>(values.data()), sizes, options);
  if (device.is_cpu()) return view;
  if (view.numel() > 0 && view.is_pinned()) return view.to(device, /*non_blocking=*/true);
  const at::Tensor pinned = at::empty(sizes, options.pinned_memory(true));
  std::memcpy(pinned.data_ptr(), values.data(), values.size_bytes());
  return pinned.to(device, /*non_blocking=*/true);
}

/// Sets the labels that images share with their partners, where any has one.
void share_labels(const Batch& batch, const ImageShape& shape, std::span<const ImageChange> changes,
                  DeviceBatch& result) {
  const auto has_partner = [](const ImageChange& change) { return change.partner >= 0; };
  if (std::ranges::none_of(changes, has_partner)) return;
  std::vector<int64_t> partners(batch.labels.begin(), batch.labels.end());
  std::vector<float> shares(changes.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    if (has_partner(changes[i])) {
      partners[i] = batch.labels[static_cast<size_t>(changes[i].partner)];
    }
    shares[i] = label_share(changes[i], shape);
  }
  const at::Device device = result.labels.device();
  result.partner_labels = upload<int64_t>(partners, {batch.count}, at::kLong, device);
  result.label_shares = upload<float>(shares, {batch.count}, at::kFloat, device);
  if (device.is_cpu()) {
    result.partner_labels = result.partner_labels.clone();
    result.label_shares = result.label_shares.clone();
  }
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

at::Tensor copy_pixels(const Batch& batch, const ImageShape& shape, at::Device device) {
  return upload(batch.pixels, {batch.count, shape.height, shape.width, shape.channels}, at::kByte,
                device);
}

DeviceBatch transform(const Batch& batch, const at::Tensor& pixels, const ImageShape& shape,
                      const Normalizer& normalizer, bool channels_last, at::ScalarType dtype,
                      std::span<const ImageChange> changes) {
  const at::Device device = pixels.device();
  std::optional<at::Tensor> rows;
  if (!changes.empty()) {
    rows = upload<ImageChange>(changes, {batch.count, kChangeInts}, at::kInt, device);
  }
  DeviceBatch result;
  const at::ScalarType type = dtype == at::kDouble ? at::kFloat : dtype;
  result.inputs =
      transform_images(pixels, normalizer.scale, normalizer.bias, rows, channels_last, type)
          .to(dtype);
  result.labels = upload(batch.labels, {batch.count}, at::kLong, device);
  if (device.is_cpu()) result.labels = result.labels.clone();
  share_labels(batch, shape, changes, result);
  return result;
}

DeviceBatch to_device(const Batch& batch, const ImageShape& shape, const Normalizer& normalizer,
                      bool channels_last, at::ScalarType dtype,
                      std::span<const ImageChange> changes) {
  const at::Tensor pixels = copy_pixels(batch, shape, normalizer.scale.device());
  return transform(batch, pixels, shape, normalizer, channels_last, dtype, changes);
}

DeviceBatch tokens_to_device(const Batch& batch, const TokenShape& shape, at::Device device) {
  const int64_t planes = shape.has_documents ? 3 : 1;
  const std::span<const int32_t> ids(reinterpret_cast<const int32_t*>(batch.pixels.data()),
                                     batch.pixels.size() / sizeof(int32_t));
  const at::Tensor rows =
      upload(ids, {batch.count, planes, shape.length + 1}, at::kInt, device).to(at::kLong);
  const at::Tensor seen = rows.narrow(2, 0, shape.length);
  DeviceBatch result;
  result.inputs = (shape.has_documents ? seen : seen.select(1, 0)).contiguous();
  result.labels = rows.select(1, 0).narrow(1, 1, shape.length).contiguous();
  if (shape.has_documents) {
    const at::Tensor segments = rows.select(1, 2);
    const at::Tensor own = segments.narrow(1, 0, shape.length);
    const at::Tensor next = segments.narrow(1, 1, shape.length);
    result.labels.masked_fill_((own != next).logical_or_(own == 0), kNoLabel);
  }
  if (std::ranges::find(batch.labels, kNoLabel) != batch.labels.end()) {  // one can't be read
    const at::Tensor labels = upload(batch.labels, {batch.count, 1}, at::kLong, device);
    result.labels.masked_fill_(labels == kNoLabel, kNoLabel);
  }
  return result;
}

}  // namespace brim::data
