#include "framework/train/ceiling.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/data/sources/synthetic.h"
#include "framework/train/trainer.h"

namespace brim::train {
namespace {

constexpr int64_t kWarmUpSteps = 3;
constexpr int64_t kFewestSteps = 5;
constexpr int64_t kMostSteps = 100;
constexpr double kLongEnoughS = 10;
constexpr int64_t kMostImages = 64;
constexpr int64_t kImagesBytes = int64_t{64} << 20;

/// Stands in for a dataset: as many samples, of the same shape and labels, but what is read is one
/// of a few images that were made beforehand. Not augmented.
class ReadyImages final : public data::ImageSamples {
 public:
  explicit ReadyImages(std::unique_ptr<data::ImageSamples> original)
      : original_(std::move(original)), shape_(original_->shape()) {
    const int64_t bytes = std::max<int64_t>(1, shape_.bytes());
    data::SyntheticConfig config;
    config.samples = std::clamp(kImagesBytes / bytes, int64_t{1}, kMostImages);
    config.classes = original_->classes();
    config.height = shape_.height;
    config.width = shape_.width;
    config.channels = shape_.channels;
    const auto made = data::as_images(config.open_train({}));
    for (int64_t i = 0; i < config.samples; ++i) {
      images_.emplace_back(static_cast<size_t>(bytes));
      made->read(i, nullptr, images_.back());
    }
  }

  int64_t size() const override { return original_->size(); }
  data::ImageShape shape() const override { return shape_; }
  int64_t classes() const override { return original_->classes(); }
  std::vector<std::string> class_names() const override { return original_->class_names(); }
  std::string name(int64_t index) const override { return original_->name(index); }
  int64_t label(int64_t index) const override { return original_->label(index); }
  std::span<const int64_t> shard_ends() const override { return original_->shard_ends(); }

  int64_t read(int64_t index, RandomStream* /*random*/, std::span<uint8_t> pixels) const override {
    std::ranges::copy(images_[static_cast<size_t>(index) % images_.size()], pixels.begin());
    return label(index);
  }

 private:
  std::unique_ptr<data::ImageSamples> original_;
  data::ImageShape shape_;
  std::vector<std::vector<uint8_t>> images_;
};

void require_going_on() {
  if (stop_requested()) throw Error(Exit::kStopped, "stopped while the ceiling was measured");
}

}  // namespace

Ceiling measure_ceiling(JobConfig job, c10::Device device, device::Memory& memory) {
  if (!job.batch.global || !job.batch.micro) {
    throw Error(Exit::kRecipe,
                "[batch] global and micro: expected the numbers that a run records, "
                "found auto");
  }
  job.optimizer.learning_rate = 0;
  Parts parts = build_parts(job, device, distributed::Group::alone());
  parts.train_data = std::make_unique<ReadyImages>(std::move(parts.train_data));
  Trainer trainer(job, std::move(parts), TrainState{}, RunFolder{}, memory);
  for (int64_t step = 0; step < kWarmUpSteps; ++step) {
    require_going_on();
    trainer.train_step();
  }
  memory.synchronize();
  Ceiling result;
  const double start_s = now_s();
  while (result.steps < kMostSteps &&
         (result.steps < kFewestSteps || now_s() - start_s < kLongEnoughS)) {
    require_going_on();
    trainer.train_step();
    ++result.steps;
  }
  memory.synchronize();
  result.seconds = now_s() - start_s;
  result.samples_per_s = static_cast<double>(result.steps * *job.batch.global) / result.seconds;
  return result;
}

}  // namespace brim::train
