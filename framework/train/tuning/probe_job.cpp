#include "framework/train/tuning/probe_job.h"

#include <utility>

#include "framework/train/input_shape.h"

namespace brim::train {

DataShape shape_of(const JobConfig& job) {
  const auto train = job.data.open_train();
  const auto eval = job.eval.enabled ? job.data.open_eval() : nullptr;
  data::check_evaluation(*train, eval.get());
  return {.input = input_shape(*train, job.data),
          .sample_bytes = train->sample_bytes(),
          .samples = train->size(),
          .cache_bytes = job.data.source->cache_bytes(),
          .eval_samples = eval == nullptr ? 0 : eval->size()};
}

ProbeJob::ProbeJob(JobConfig& job, const DataShape& shape)
    : job_(job),
      shape_(shape),
      source_(std::exchange(job.data.source, recipe::Slot<data::SourceConfig>(""))),
      pretrained_(std::exchange(job.model.pretrained, {})),
      sampler_(std::exchange(job.data.sampler, {})),
      schedule_(std::exchange(job.schedule, {})),
      batch_(job.batch),
      steps_(job.train.steps),
      recompute_(job.train.recompute),
      cuda_graph_(std::exchange(job.train.cuda_graph, false)),  // step_graph.h: the same memory
      distributed_(job.distributed),
      workers_(job.data.workers) {
  job.data.sampler.sampler.select("shuffled");
  job.schedule.schedule.select("constant");
  job.train.steps = 2;
  job.distributed.balance = distributed::Balance::kEven;
  // Threads that decode real samples are not what a probe is about.
  job.data.workers = 0;
}

ProbeJob::~ProbeJob() {
  job_.data.source = std::move(source_);
  job_.model.pretrained = std::move(pretrained_);
  job_.data.sampler = std::move(sampler_);
  job_.schedule = std::move(schedule_);
  job_.batch = batch_;
  job_.train.steps = steps_;
  job_.train.recompute = recompute_;
  job_.train.cuda_graph = cuda_graph_;
  job_.distributed = distributed_;
  job_.data.workers = workers_;
}

void ProbeJob::set_size(int64_t size, int64_t micro_batches, int64_t parts) {
  job_.batch.micro = size;
  job_.batch.global = micro_batches * size * parts;
  const int64_t eval_samples = shape_.has_evaluation() ? job_.eval.batch.value_or(size) * parts : 0;
  select_synthetic(shape_.input, 2 * *job_.batch.global, eval_samples, job_.data.source);
}

}  // namespace brim::train
