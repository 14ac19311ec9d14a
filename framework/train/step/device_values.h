// Scalars on their way from the device to the host. The step pushes them and continues; they are
// taken once they have arrived, so that logging a loss never stalls the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "framework/distributed/group.h"

namespace brim::train {

struct ArrivedValues {
  int64_t step;
  std::vector<float> values;
};

/// Not thread-safe: it belongs to the thread that drives the step.
class DeviceValues {
 public:
  /// Starts the copy of `values`, float32 [K], to the host. Values on the CPU have arrived when
  /// `sum`, a collective that works on them, has ended; those of a GPU are copied after it. Waits
  /// for the oldest and drops them where no one takes them.
  void push(int64_t step, const at::Tensor& values, distributed::Pending sum);

  /// The oldest values if they have arrived, or if `wait` or more than kMaxInFlight are under way.
  std::optional<ArrivedValues> pop(bool wait);

 private:
  // How far the host may be ahead of the device, in steps: each holds the memory of its batches.
  static constexpr size_t kMaxInFlight = 2;
  struct InFlight {
    int64_t step;
    at::Tensor host;  // pinned where the device is not the CPU
    std::optional<c10::Event> copied;
    distributed::Pending sum;
  };
  std::deque<InFlight> in_flight_;
};

}  // namespace brim::train
