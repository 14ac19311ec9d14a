#include "framework/train/observe/ceiling.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/device/shared_cores.h"
#include "framework/train/components.h"
#include "framework/train/input_shape.h"
#include "framework/train/step/training_step.h"

namespace brim::train {
namespace {

constexpr int64_t kWarmUpSteps = 3;
constexpr int64_t kFewestSteps = 5;
constexpr double kWarmUpShare = 0.3;  // of the time: the ways to wait are compared in it
constexpr int64_t kMaxReady = 64;
constexpr int64_t kReadyBytes = int64_t{64} << 20;

/// A few samples that look like this, made beforehand.
std::vector<std::vector<uint8_t>> ready_samples(const nn::ModelShape& shape, int64_t sample_bytes) {
  const int64_t bytes = std::max<int64_t>(1, sample_bytes);
  const int64_t count = std::clamp(kReadyBytes / bytes, int64_t{1}, kMaxReady);
  recipe::Slot<data::SourceConfig> source("");
  select_synthetic(shape, count, 0, source);
  const auto made = source->open_train({});
  std::vector<std::vector<uint8_t>> samples;
  for (int64_t i = 0; i < count; ++i) {
    samples.emplace_back(static_cast<size_t>(bytes));
    made->read(i, nullptr, samples.back());
  }
  return samples;
}

/// Stands in for a dataset: as many samples, of the same shape and labels, but what is read is one
/// of those. Not augmented.
template <class Samples>
class ReadySamples : public Samples {
 public:
  ReadySamples(const Samples& samples, std::unique_ptr<data::Dataset> original)
      : samples_(samples), original_(std::move(original)) {}

  int64_t size() const override { return original_->size(); }
  decltype(std::declval<Samples>().shape()) shape() const override { return samples_.shape(); }
  int64_t classes() const override { return original_->classes(); }
  std::string name(int64_t index) const override { return original_->name(index); }
  int64_t label(int64_t index) const override { return original_->label(index); }
  std::span<const int64_t> shard_ends() const override { return original_->shard_ends(); }

  int64_t read(int64_t index, RandomStream* /*random*/, std::span<uint8_t> bytes) const override {
    std::ranges::copy(ready_[static_cast<size_t>(index) % ready_.size()], bytes.begin());
    return label(index);
  }

  void make(const nn::ModelShape& shape) { ready_ = ready_samples(shape, this->sample_bytes()); }

 protected:
  const Samples& samples_;

 private:
  std::unique_ptr<data::Dataset> original_;
  std::vector<std::vector<uint8_t>> ready_;
};

using ReadyTokens = ReadySamples<data::TokenSamples>;

class ReadyImages final : public ReadySamples<data::ImageSamples> {
 public:
  using ReadySamples::ReadySamples;
  int64_t classes() const override { return samples_.classes(); }
  int64_t label(int64_t index) const override { return samples_.label(index); }
  std::vector<std::string> class_names() const override { return samples_.class_names(); }
};

template <class Ready, class Samples>
std::unique_ptr<data::Dataset> ready(const Samples& samples,
                                     std::unique_ptr<data::Dataset> original,
                                     const nn::ModelShape& shape) {
  auto result = std::make_unique<Ready>(samples, std::move(original));
  result->make(shape);
  return result;
}

std::unique_ptr<data::Dataset> ready_in_place_of(std::unique_ptr<data::Dataset> original,
                                                 const nn::ModelShape& shape) {
  if (const data::ImageSamples* images = original->images()) {
    return ready<ReadyImages>(*images, std::move(original), shape);
  }
  if (const data::TokenSamples* tokens = original->tokens()) {
    return ready<ReadyTokens>(*tokens, std::move(original), shape);
  }
  return original;
}

void require_going_on() {
  if (stop_requested()) throw Error(Exit::kStopped, "stopped while the ceiling was measured");
}

}  // namespace

Ceiling measure_ceiling(JobConfig job, c10::Device device, device::Memory& memory, double seconds) {
  if (!job.batch.global || !job.batch.micro) {
    throw Error(Exit::kRecipe,
                "[batch] global and micro: expected the numbers that a run records, "
                "found auto");
  }
  job.optimizer.learning_rate = 0;
  TrainingComponents components = build_components(job, device, distributed::Group::alone());
  components.data.train =
      ready_in_place_of(std::move(components.data.train), components.model.input);
  TrainingStep step(job, components, /*finished_steps=*/0, {}, memory);
  const auto take_steps = [&](int64_t fewest, double at_least_s) {
    const double start_s = now_s();
    int64_t taken = 0;
    for (; taken < fewest || now_s() - start_s < at_least_s; ++taken) {
      require_going_on();
      step.take();
      device::SharedCores::count_step();
    }
    memory.synchronize();
    return Ceiling{.steps = taken, .seconds = now_s() - start_s};
  };
  take_steps(kWarmUpSteps, kWarmUpShare * seconds);
  Ceiling result = take_steps(kFewestSteps, (1 - kWarmUpShare) * seconds);
  result.samples_per_s = static_cast<double>(result.steps * *job.batch.global) / result.seconds;
  return result;
}

}  // namespace brim::train
