#include "framework/data/transfer/prefetcher.h"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/memory.h"
#include "framework/device/stream_event.h"

namespace brim::data {
namespace {

constexpr std::string_view kAdvice = "Set data.decode = \"cpu\"";
constexpr size_t kManyFiles = 8;  // that are not all odd ones

/// Pinned memory, from which copies run by themselves, for a loader that feeds a CUDA device.
AllocatePixels pixels_for(at::Device device) {
  if (device.is_cpu()) return nullptr;
  return [](size_t bytes) {
    const at::Tensor memory = at::empty({static_cast<int64_t>(bytes)},
                                        at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    return std::shared_ptr<uint8_t[]>(memory.data_ptr<uint8_t>(), [memory](uint8_t*) {});
  };
}

at::Device device_of(const InputOptions& input) {
  if (const auto* tokens = std::get_if<TokenInputs>(&input)) return tokens->device;
  return std::get<ImageInputs>(input).normalizer.scale.device();
}

/// `loading`, by which a dataset that asks for it has the device decode.
LoaderOptions with_decoder(LoaderOptions loading, const Dataset& dataset, at::Device device) {
  if (dataset.samples_together() > 1) loading.draw_jpegs = jpeg_decoder(device);
  return loading;
}

void use_on(const c10::Stream& stream, const at::Tensor& tensor) {
  if (tensor.defined()) tensor.record_stream(stream);
}

}  // namespace

device::DrawJpegs jpeg_decoder(at::Device device) {
  if (!device.is_cuda()) {
    throw Error(Exit::kRecipe,
                "data.decode = \"gpu\": expected a CUDA device, found {}. {}, or train on a GPU",
                device.str(), kAdvice);
  }
  const device::CudaBackend& cuda = *device::cuda().backend;
  const std::string problem = cuda.nvjpeg_problem(device.index());
  if (!problem.empty()) {
    throw Error(Exit::kResource,
                "data.decode = \"gpu\": nvJPEG can't be used: {}. {}, or make nvJPEG available",
                problem, kAdvice);
  }
  return [&cuda, index = device.index()](std::span<device::DrawnJpeg> jpegs) {
    static std::once_flag said_memory, said_none;
    if (!device::fits([&] { cuda.draw_jpegs(jpegs, index); })) {  // left for the CPU
      std::call_once(said_memory, [] {
        log::warning(
            "not enough GPU memory to decode images: the CPU decodes where it falls short. {}, or "
            "use a smaller batch",
            kAdvice);
      });
      return;
    }
    if (jpegs.size() < kManyFiles || std::ranges::any_of(jpegs, &device::DrawnJpeg::is_drawn))
      return;
    std::call_once(said_none, [&] {
      log::warning("nvJPEG has taken none of {} images, which the CPU decodes. {}", jpegs.size(),
                   kAdvice);
    });
  };
}

DevicePrefetcher::DevicePrefetcher(const Dataset& dataset, const LoaderOptions& loading,
                                   const InputOptions& input, Timeline& timeline,
                                   int64_t start_epoch, int64_t start_step)
    : dataset_(dataset),
      input_(input),
      loading_(with_decoder(loading, dataset, device_of(input))),
      timeline_(timeline),
      loader_(dataset, loading_, start_epoch, start_step, pixels_for(device_of(input))) {
  const at::Device device = device_of(input_);
  if (!device.is_cpu()) copies_.emplace(device);
}

const DevicePrefetcher::Input* DevicePrefetcher::next() {
  current_ = std::exchange(is_ahead_, false) ? std::exchange(ahead_, std::nullopt) : load();
  if (!current_) return nullptr;
  if (copies_) {
    const c10::Stream stream = device::current_stream(copies_->stream().device());
    timeline_.enter(Phase::kCopy);  // what the device waits for it
    copies_->block(stream);
    // Memory that one stream allocates and another one uses is given back only after both.
    const DeviceBatch& batch = current_->tensors;
    for (const at::Tensor& tensor :
         {batch.inputs, batch.labels, batch.partner_labels, batch.label_shares}) {
      use_on(stream, tensor);
    }
  }
  return &*current_;
}

void DevicePrefetcher::prefetch() {
  if (!copies_ || is_ahead_) return;
  // The step under way has its batch: what a stop or a lack of memory leaves is next()'s.
  device::fits([this] {
    try {
      ahead_ = load();
      is_ahead_ = true;
    } catch (const Error& error) {
      if (error.status() != Exit::kStopped) throw;
    }
  });
}

OverlappedWork DevicePrefetcher::take_overlapped() {
  OverlappedWork work = loader_.take_overlapped();
  if (copies_) work.copy_s = copies_->take_overlapped_s();
  return work;
}

std::optional<DevicePrefetcher::Input> DevicePrefetcher::load() {
  timeline_.enter(Phase::kDataWait);
  // The loader is about to write to the pixels of the batch before this one.
  if (copies_) copies_->synchronize();
  if (loaded_ == nullptr) loaded_ = loader_.next();
  timeline_.enter(Phase::kCopy);
  if (loaded_ == nullptr) return std::nullopt;
  c10::OptionalStreamGuard on_copies;
  if (copies_) {
    on_copies.reset_stream(copies_->stream());
    copies_->begin();
  }
  Input input = {*loaded_, tensors(*loaded_)};
  loaded_ = nullptr;
  if (copies_) copies_->end();
  if (dataset_.is_weighted()) weigh(input);
  return input;
}

DeviceBatch DevicePrefetcher::tensors(const Batch& batch) const {
  if (const auto* tokens = std::get_if<TokenInputs>(&input_)) {
    return tokens_to_device(batch, tokens->shape, tokens->device);
  }
  const auto& images = std::get<ImageInputs>(input_);
  std::vector<ImageChange> changes;
  if (loading_.augment) {
    changes = draw_changes(images.mix, loading_.seed, batch.epoch, batch.first_position,
                           batch.count, images.shape);
  }
  const at::Tensor pixels = copy_pixels(batch, images.shape, device_of(input_));
  timeline_.enter(Phase::kTransform);
  return transform(batch, pixels, images.shape, images.normalizer, images.channels_last,
                   images.dtype, changes);
}

void DevicePrefetcher::weigh(BatchPlan& plan) {
  const auto weight = [&](int64_t first, int64_t count) {
    int64_t sum = 0;
    for (int64_t position = first; position < first + count; ++position) {
      sum += dataset_.weight(loading_.order->at(plan.epoch, position).sample);
    }
    return sum;
  };
  if (step_weight_ == 0) {
    step_weight_ = weight(plan.step * loading_.global_batch, plan.step_samples);
  }
  plan.weight = weight(plan.first_position, plan.count);
  plan.step_weight = step_weight_;
  if (plan.ends_step) step_weight_ = 0;
}

}  // namespace brim::data
