#include "framework/train/step/device_values.h"

#include <ATen/ATen.h>

#include "framework/device/stream_event.h"

namespace brim::train {

void DeviceValues::push(int64_t step, const at::Tensor& values, distributed::Pending sum) {
  while (in_flight_.size() > kMaxInFlight) pop(/*wait=*/true);
  if (values.device().is_cpu()) {
    in_flight_.push_back({step, values, std::nullopt, std::move(sum)});
    return;
  }
  sum.wait();  // the device's wait, not the host's
  at::Tensor host =
      at::empty(values.sizes(), at::device(at::kCPU).dtype(at::kFloat).pinned_memory(true));
  host.copy_(values, /*non_blocking=*/true);
  c10::Event copied(values.device().type());
  copied.record(device::current_stream(values.device()));
  in_flight_.push_back({step, std::move(host), std::move(copied), {}});
}

std::optional<ArrivedValues> DeviceValues::pop(bool wait) {
  if (in_flight_.empty()) return std::nullopt;
  InFlight& oldest = in_flight_.front();
  if (!oldest.sum.is_done() && !wait && in_flight_.size() <= kMaxInFlight) return std::nullopt;
  oldest.sum.wait();
  if (oldest.copied && !oldest.copied->query()) {
    if (!wait && in_flight_.size() <= kMaxInFlight) return std::nullopt;
    oldest.copied->synchronize();
  }
  const float* start = oldest.host.const_data_ptr<float>();
  ArrivedValues arrived{oldest.step, {start, start + oldest.host.numel()}};
  in_flight_.pop_front();
  return arrived;
}

}  // namespace brim::train
