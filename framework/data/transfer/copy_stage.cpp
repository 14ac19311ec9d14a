#include "framework/data/transfer/copy_stage.h"

#include <algorithm>
#include <limits>

#include "framework/device/stream_event.h"

namespace brim::data {

double measure_copy(const Dataset& dataset, LoaderOptions loading, const InputOptions& input,
                    at::Device device, int64_t samples) {
  loading.workers = 0;
  Timeline timeline;
  DevicePrefetcher inputs(dataset, loading, input, timeline);
  const auto next = [&] {
    const int64_t count = inputs.next()->count;  // ends in the phase transform
    if (!device.is_cpu()) device::current_stream(device).synchronize();
    timeline.enter(Phase::kOther);
    return count;
  };
  next();  // allocates what the others use again
  timeline.take();
  double least_s = std::numeric_limits<double>::infinity();
  for (int64_t copied = 0; copied < samples;) {
    const int64_t count = next();
    const auto seconds = timeline.take();
    least_s = std::min(least_s, (seconds[static_cast<size_t>(Phase::kCopy)] +
                                 seconds[static_cast<size_t>(Phase::kTransform)]) /
                                    static_cast<double>(count));
    copied += count;
  }
  return least_s;
}

}  // namespace brim::data
