#include "framework/data/loading/throughput.h"

#include <ctime>
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
  std::vector<uint8_t> pixels(static_cast<size_t>(dataset.sample_bytes()));
  StageClock clock;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t position = i % dataset.size();
    const int64_t epoch = i / dataset.size();
    const SampleRef ref = options.order->at(epoch, position);
    RandomStream random(options.seed, static_cast<uint64_t>(epoch),
                        static_cast<uint64_t>(ref.stream));
    enter_stage(Stage::kRead);
    require_no_stop();
    try {
      dataset.read(ref.sample, options.augment ? &random : nullptr, pixels);
    } catch (const Error& error) {
      if (error.status() != Exit::kData || options.on_error == OnError::kFail) throw;
    }
  }
  enter_stage(Stage::kRead);
  auto seconds = clock.seconds();
  for (double& s : seconds) s /= static_cast<double>(samples);
  return seconds;
}

}  // namespace brim::data
