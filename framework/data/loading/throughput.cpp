#include "framework/data/loading/throughput.h"

#include <algorithm>
#include <ctime>
#include <span>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/data/loading/loader.h"

namespace brim::data {
namespace {

double process_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void require_no_stop() {
  if (stop_requested()) throw Error(Exit::kStopped, "stopped");
}

}  // namespace

Throughput measure_loader(const Dataset& dataset, const LoaderOptions& options, int64_t warmup,
                          int64_t samples) {
  Loader loader(dataset, options);
  const auto load = [&loader](int64_t least) {
    int64_t loaded = 0;
    while (loaded < least) {
      require_no_stop();
      loaded += loader.next()->count;
    }
    return loaded;
  };
  load(warmup);
  const double start_s = now_s();
  const double start_cpu_s = process_cpu_s();
  const int64_t loaded = load(samples);
  const auto count = static_cast<double>(loaded);
  return {.samples = loaded,
          .samples_per_s = count / (now_s() - start_s),
          .cpu_s_per_sample = (process_cpu_s() - start_cpu_s) / count};
}

std::array<double, kStageCount> measure_stages(const Dataset& dataset, const LoaderOptions& options,
                                               int64_t samples) {
  const auto bytes = static_cast<size_t>(dataset.sample_bytes());
  const int64_t together = options.draw_jpegs ? dataset.samples_together() : 1;
  std::vector<uint8_t> pixels(static_cast<size_t>(together) * bytes);
  StageClock clock;
  for (int64_t first = 0; first < samples; first += together) {
    enter_stage(Stage::kRead);
    require_no_stop();
    const auto count = static_cast<size_t>(std::min(together, samples - first));
    std::vector<SampleRequest> requests(count);
    for (size_t i = 0; i < count; ++i) {
      const int64_t number = first + static_cast<int64_t>(i);
      const int64_t epoch = number / dataset.size();
      const SampleRef ref = options.order->at(epoch, number % dataset.size());
      requests[i] = {.sample = ref.sample, .bytes = std::span(pixels).subspan(i * bytes, bytes)};
      if (!options.augment) continue;
      requests[i].random.emplace(options.seed, static_cast<uint64_t>(epoch),
                                 static_cast<uint64_t>(ref.stream));
    }
    if (together > 1) dataset.read_together(requests, options.draw_jpegs);
    for (SampleRequest& request : requests) {
      if (request.is_read) continue;
      enter_stage(Stage::kRead);
      try {
        dataset.read(request.sample, request.random ? &*request.random : nullptr, request.bytes);
      } catch (const Error& error) {
        if (error.status() != Exit::kData || options.on_error == OnError::kFail) throw;
      }
    }
  }
  enter_stage(Stage::kRead);
  auto seconds = clock.seconds();
  for (double& s : seconds) s /= static_cast<double>(samples);
  return seconds;
}

}  // namespace brim::data
