#include "framework/train/inputs.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/device/memory/advice.h"
#include "framework/train/components.h"

namespace brim::train {
namespace {

constexpr int kLoaderNice = 10;  // what nice(1) adds by default

}  // namespace

data::InputOptions input_options(const data::DataConfig& config, const data::Dataset& dataset,
                                 at::Device device, bool channels_last, at::ScalarType dtype) {
  if (const data::TokenSamples* tokens = dataset.tokens()) {
    return data::TokenInputs{tokens->shape(), device};
  }
  const data::ImageShape shape = dataset.images()->shape();
  return data::ImageInputs{
      .shape = shape,
      .normalizer = data::make_normalizer(config.normalization(shape.channels), device),
      .channels_last = channels_last,
      .dtype = dtype,
      .mix = config.augment.mix};
}

int64_t prefetch_buffer_bytes(const data::DataConfig& config, int64_t sample_bytes, int64_t micro) {
  return (config.prefetch + 2) * micro * sample_bytes;
}

void require_room_beside_cache(int64_t cache_bytes, const device::Memory& memory) {
  if (cache_bytes < memory.limit_bytes()) return;
  throw Error(Exit::kResource,
              "data.cache may take {}: expected less than the {} that the job may take. Lower "
              "data.cache_gib, or {}",
              format_bytes(cache_bytes), format_bytes(memory.limit_bytes()), device::more_memory());
}

const data::DevicePrefetcher::Input* next_unless_stopped(data::DevicePrefetcher& inputs) {
  try {
    return inputs.next();
  } catch (const Error& error) {
    if (error.status() != Exit::kStopped) throw;
    return nullptr;
  }
}

Inputs::Inputs(const JobConfig& job, const Datasets& data, const RankModel& model)
    : job_(job),
      data_(data),
      model_(model),
      options_(input_options(job.data, *data.train, model.device, model.channels_last,
                             model.precision.parameters())) {}

/// This rank's part of what the recipe says of loading.
data::LoaderOptions Inputs::share(data::LoaderOptions options) const {
  const distributed::Ranks& ranks = model_.group->ranks();
  options.rank = model_.data_rank();
  options.world = model_.data_world();
  // On a CPU the step computes on the same cores, and its threads wait for the one held up.
  if (model_.device.is_cpu()) options.nice = kLoaderNice;
  if (options.adapt_workers) {
    options.workers = std::max<int64_t>(1, usable_cores() / ranks.local_world - 1);
  }
  return options;
}

data::LoaderOptions Inputs::training_options(int64_t micro) const {
  data::LoaderOptions options = share(job_.data.train_options());
  options.global_batch = *job_.batch.global;
  options.micro_batch = micro;
  options.seed = static_cast<uint64_t>(job_.run.seed);
  options.order = data_.order;
  return options;
}

std::vector<data::BatchPlan> Inputs::micro_batches(int64_t finished_steps, int64_t micro) const {
  const int64_t steps = data_.steps_per_epoch;
  data::Plan plan(data_.train->size(), training_options(micro), finished_steps / steps,
                  finished_steps % steps);
  std::vector<data::BatchPlan> result;
  do result.push_back(*plan.next());
  while (!result.back().ends_step);
  return result;
}

std::unique_ptr<data::DevicePrefetcher> Inputs::training(
    int64_t finished_steps, int64_t micro, std::shared_ptr<data::RankPartition> shares,
    Timeline& timeline) const {
  data::LoaderOptions options = training_options(micro);
  options.shares = std::move(shares);
  options.replacements = replacements_;
  return std::make_unique<data::DevicePrefetcher>(*data_.train, options, options_, timeline,
                                                  finished_steps / data_.steps_per_epoch,
                                                  finished_steps % data_.steps_per_epoch);
}

data::LoaderOptions Inputs::evaluation_options(int64_t batch, int64_t pass) const {
  data::LoaderOptions options = share(job_.data.eval_options());
  options.micro_batch = pass;
  options.global_batch = batch * options.world;
  options.replacements = left_out_;
  return options;
}

int64_t Inputs::evaluation_samples() const { return data_.eval->size(); }

std::vector<data::BatchPlan> Inputs::evaluation_passes(int64_t batch, int64_t pass) const {
  data::Plan plan(data_.eval->size(), evaluation_options(batch, pass), 0, 0);
  std::vector<data::BatchPlan> result;
  while (const auto next = plan.next()) result.push_back(*next);
  return result;
}

std::unique_ptr<data::DevicePrefetcher> Inputs::evaluation(int64_t batch, int64_t pass,
                                                           Timeline& timeline) const {
  return std::make_unique<data::DevicePrefetcher>(*data_.eval, evaluation_options(batch, pass),
                                                  options_, timeline);
}

}  // namespace brim::train
