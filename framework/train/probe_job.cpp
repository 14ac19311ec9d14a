#include "framework/train/probe_job.h"

#include <utility>

#include "framework/data/sources/synthetic.h"

namespace brim::train {

DataShape shape_of(const JobConfig& job) {
  const auto train = data::as_images(job.data.open_train());
  if (train == nullptr) {
    throw Error(Exit::kRecipe, "[batch] micro = \"auto\" is for data of images; give a number");
  }
  return {.image = train->shape(),
          .classes = train->classes(),
          .samples = train->size(),
          .cache_bytes = job.data.source->cache_bytes(),
          .has_evaluation = job.data.open_eval() != nullptr};
}

ProbeJob::ProbeJob(JobConfig& job, const DataShape& shape)
    : job_(job),
      shape_(shape),
      source_(std::exchange(job.data.source, recipe::Slot<data::SourceConfig>(""))),
      pretrained_(std::exchange(job.model.pretrained, {})),
      sampler_(std::exchange(job.data.sampler, {})),
      batch_(job.batch),
      train_(job.train),
      distributed_(job.distributed),
      workers_(job.data.workers) {
  job.data.source.select("synthetic");
  job.data.sampler.sampler.select("shuffled");
  job.train.steps = 2;
  job.distributed.balance = distributed::Balance::kEven;
  // Threads that decode real samples are not what a probe is about.
  job.data.workers = 0;
}

ProbeJob::~ProbeJob() {
  job_.data.source = std::move(source_);
  job_.model.pretrained = std::move(pretrained_);
  job_.data.sampler = std::move(sampler_);
  job_.batch = batch_;
  job_.train = train_;
  job_.distributed = distributed_;
  job_.data.workers = workers_;
}

void ProbeJob::set_size(int64_t size, int64_t share, int64_t world) {
  auto& synthetic = dynamic_cast<data::SyntheticConfig&>(*job_.data.source.part());
  job_.batch.micro = size;
  const bool accumulates = !grows() && size < share;
  job_.batch.global = (accumulates ? 2 * size : size) * world;
  synthetic.height = shape_.image.height;
  synthetic.width = shape_.image.width;
  synthetic.channels = shape_.image.channels;
  synthetic.classes = shape_.classes;
  synthetic.samples = 2 * *job_.batch.global;
  synthetic.eval_samples = shape_.has_evaluation ? job_.eval.batch.value_or(size) * world : 0;
}

}  // namespace brim::train
