// A loader's batch as tensors on the device, where it is transformed: normalised, mixed, erased.
// What the loader's threads draw for each sample is augmentation (augment/augment.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "framework/data/augment/image_change.h"
#include "framework/data/config.h"
#include "framework/data/dataset.h"
#include "framework/data/loading/loader.h"

namespace brim::data {

/// A Normalization as the device applies it, made once: y = pixel · scale + bias.
struct Normalizer {
  at::Tensor scale;  // float32 [C]
  at::Tensor bias;   // float32 [C]
};

Normalizer make_normalizer(const Normalization& normalization, at::Device device);

struct DeviceBatch {
  at::Tensor inputs;  // images [N, C, H, W]; tokens, int64 [N, T] or [N, 3, T] (nn/model.h)
  at::Tensor labels;  // int64 [N]; of tokens [N, T], the next ones, kNoLabel where there is none
  // Where images are mixed in pairs, else undefined:
  at::Tensor partner_labels;  // int64 [N]
  at::Tensor label_shares;    // float32 [N]: of labels; the rest is partner_labels'
};

/// uint8 [N, H, W, C] on the device; on the CPU a view of the batch's. Enqueued as to_device() is.
at::Tensor copy_pixels(const Batch& batch, const ImageShape& shape, at::Device device);

/// What to_device() does once the batch's pixels are there.
DeviceBatch transform(const Batch& batch, const at::Tensor& pixels, const ImageShape& shape,
                      const Normalizer& normalizer, bool channels_last, at::ScalarType dtype,
                      std::span<const ImageChange> changes);

/// Copies to the normalizer's device, normalises, and applies `changes` (mix.h), one an image or
/// none at all. inputs have `dtype` (float32, bfloat16 or float16; float64 holds float32 values)
/// and lie channels last where asked. The tensors own their memory: on the CPU the batch may go. On
/// CUDA the copies are enqueued on the current stream from pinned memory and nothing waits for
/// them; pixels in pinned memory must stay until that is done.
DeviceBatch to_device(const Batch& batch, const ImageShape& shape, const Normalizer& normalizer,
                      bool channels_last, at::ScalarType dtype = at::kFloat,
                      std::span<const ImageChange> changes = {});

/// The same for rows of tokens: what a model sees, and what it is to predict.
DeviceBatch tokens_to_device(const Batch& batch, const TokenShape& shape, at::Device device);

}  // namespace brim::data
