#include "framework/train/step/training_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/data/transfer/prefetcher.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/advice.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/data_parallel.h"
#include "framework/distributed/sum_after_backward.h"
#include "framework/nn/stage.h"
#include "framework/optim/clip.h"
#include "framework/train/components.h"
#include "framework/train/evaluation.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/observe/module_memory.h"
#include "framework/train/step/balancer.h"
#include "framework/train/step/pipeline_step.h"

namespace brim::train {
namespace {

constexpr int64_t kMemoryChecks = 64;  // steps between looks at what is held beside tensors

bool records_passes(const JobConfig& job, const TrainingComponents& components) {
  return job.train.cuda_graph && no_cuda_graph(job, components.model).empty();
}

std::shared_ptr<distributed::Strategy> strategy_of(const JobConfig& job,
                                                   const TrainingComponents& components,
                                                   const distributed::BucketLayout& buckets) {
  if (components.model.sharded) {
    components.model.sharded->require_same_model();
    return components.model.sharded;
  }
  if (records_passes(job, components) && !components.model.group->is_single_rank()) {
    return std::make_shared<distributed::SumAfterBackward>(
        components.model.group, *components.model.module, job.distributed.gradients);
  }
  if (components.model.pipeline == nullptr) {
    return std::make_shared<distributed::DataParallel>(
        components.model.group, *components.model.module, job.distributed.gradients, buckets);
  }
  components.model.pipeline->connect(components.model.device);
  return std::make_shared<distributed::DataParallel>(
      components.model.pipeline->same_stage(), *components.model.module, job.distributed.gradients,
      components.model.pipeline->own_buckets(buckets));
}

/// With synchronized batch norms each pass takes all ranks: null on all where any was asked to stop
/// while it waited for its data.
const data::DevicePrefetcher::Input* next_of_all(data::DevicePrefetcher& inputs,
                                                 distributed::Group& group, Timeline& timeline) {
  const data::DevicePrefetcher::Input* batch = next_unless_stopped(inputs);
  timeline.enter(Phase::kCommunication);
  return group.any(batch == nullptr, "the next micro-batch") ? nullptr : batch;
}

void add_pass(at::Tensor& sum, const at::Tensor& pass) { sum = sum.defined() ? sum + pass : pass; }

/// Null where passes are not to be recorded.
std::unique_ptr<device::GraphRecorder> graph_recorder(const JobConfig& job,
                                                      const TrainingComponents& components) {
  if (!records_passes(job, components)) return nullptr;
  return device::cuda().backend->make_graph_recorder(
      std::max<int>(0, components.model.device.index()));
}

}  // namespace

TrainingStep::TrainingStep(const JobConfig& job, TrainingComponents& components,
                           int64_t finished_steps, const distributed::BucketLayout& buckets,
                           device::Memory& memory)
    : job_(job),
      components_(components),
      group_(*components.model.group),
      finished_steps_(finished_steps),
      memory_(memory),
      strategy_(strategy_of(job, components, buckets)),
      host_syncs_(components.model.device),
      histograms_(*components.model.module, job.telemetry.histograms_every_steps),
      all_inputs_(std::make_unique<Inputs>(job, components.data, components.model)),
      evaluator_(std::make_unique<Evaluator>(components.model, *components.task,
                                             components.ema.get(), *all_inputs_)),
      micro_batch_(job.batch.micro_or_all(), job.data.augment.mix.unit()),
      step_start_(*components.model.module, components.model.device),
      passes_(components.model, *components.task, *components.scaler,
              graph_recorder(job, components)),
      shortage_(device::kShortElsewhere) {
  for (const auto& [name, parameter] : components.model.own_parameters()) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
  components.model.module->train();
  if (!components.model.pipeline) return;
  stages_ = std::make_unique<PipelineStep>(job.distributed.schedule, !job.train.recompute.empty(),
                                           components.model, *strategy_, passes_, timeline_);
}

TrainingStep::~TrainingStep() = default;

std::optional<TakenStep> TrainingStep::take() {
  if (micro_batch_.grow(finished_steps_)) {
    log::info("trying micro-batch {} again", micro_batch_.size());
    if (observer_ != nullptr) observer_->micro_batch(finished_steps_ + 1, micro_batch_.size());
    inputs_.reset();
    passes_.reset();
  }
  int64_t too_large = 0;  // with what this step has run out of memory
  for (;;) {
    try {
      if (auto step = try_once()) {
        checkpoint_room_.reset();
        return step;
      }
    } catch (const Error& error) {
      // The state can be saved then. Other ranks would have to give the step up, too.
      if (error.status() == Exit::kData && group_.is_single_rank()) undo();
      // Our batch norms refuse to see one value, as do LibTorch's.
      if (error.status() == Exit::kRecipe && too_large > 0) {
        refuse_to_shrink(too_large, ", and the model takes no smaller one");
      }
      throw;
    } catch (const c10::Error& error) {
      if (too_large == 0) throw;
      refuse_to_shrink(too_large, fmt::format(", and a smaller one ends with \"{}\"",
                                              error.what_without_backtrace()));
    }
    undo();
    if (group_.any(stop_requested(), "the stop request")) return std::nullopt;
    too_large = make_room();
  }
}

std::optional<TakenStep> TrainingStep::try_once() {
  const HostSyncs::Watch watch(host_syncs_);
  step_start_.remember();
  const std::optional<Gradients> gradients = try_accumulate();
  if (!gradients) return std::nullopt;
  const double learning_rate = update(*gradients);
  return finish(*gradients, learning_rate);
}

/// Here what the pass held is free again. The first step tells which modules hold the memory.
std::optional<TrainingStep::Gradients> TrainingStep::try_accumulate() {
  std::optional<Gradients> gradients;
  std::optional<ModuleMemory> watch;
  const auto prepare = [&] {
    if (!knows_modules_) {
      if (leaves_checkpoint_room_) {
        checkpoint_room_ = at::empty({account().checkpoint_bytes}, at::kByte);
      }
      watch.emplace(*components_.model.module, components_.model.device);
    }
    if (inputs_ == nullptr) start_inputs();
  };
  const auto work = [&] {
    if (stages_) {
      gradients = accumulate_in_stages(prepare);
    } else {
      prepare();
      gradients = accumulate();
    }
  };
  bool is_through = true;
  try {
    // Other ranks wait within passes: one that ran out of memory can't be given up from here.
    if (components_.model.has_sync_batch_norm || stages_) {
      work();
    } else {
      is_through = device::fits(work, &shortage_);
    }
  } catch (const Error& error) {
    if (error.status() != Exit::kStopped) throw;
    is_through = false;
  }
  if (watch) {
    modules_ = watch->largest(kLargestModules);
    watch.reset();
    knows_modules_ = gradients.has_value();
    if (observer_ != nullptr && knows_modules_) observer_->memory(account());
  }
  if (!is_through) strategy_->give_up();
  return gradients;
}

// Reads top to bottom, in the order in which things happen.
std::optional<TrainingStep::Gradients> TrainingStep::accumulate() {
  Gradients result;
  const bool shares_casts =
      components_.model.shares_casts(!job_.train.recompute.empty()) && !passes_.is_recorded();
  std::optional<amp::WeightCasts> casts;
  const data::DevicePrefetcher::Input* batch = nullptr;
  do {  // each micro-batch
    batch = components_.model.has_sync_batch_norm
                ? next_of_all(*inputs_, group_, timeline_)
                : inputs_->next();  // phases data_wait, copy, transform
    if (batch == nullptr) return std::nullopt;
    const bool sums = batch->ends_step;
    result.own_samples += batch->count;

    timeline_.enter(Phase::kCommunication);
    strategy_->before_forward(sums);

    timeline_.enter(Phase::kForward);
    if (shares_casts && !sums && !casts) casts.emplace();
    components_.optimizer->begin_forward();
    const double share =
        batch->weight < batch->step_weight
            ? static_cast<double>(batch->weight) / static_cast<double>(batch->step_weight)
            : 1.0;
    const StepGraph::Pass pass = passes_.forward(
        batch->tensors, share, /*is_first=*/!result.loss.defined(), wants_unsmoothed());
    components_.optimizer->finish_step();
    if (sums) casts.reset();  // backward frees them as it proceeds
    timeline_.move(Phase::kForward, Phase::kCommunication,
                   components_.optimizer->waited_s() + strategy_->waited_s());

    timeline_.enter(Phase::kBackward);
    if (!strategy_->backward(pass.scaled, sums, [&] { passes_.backward(pass); })) {
      return std::nullopt;
    }
    timeline_.move(Phase::kBackward, Phase::kCommunication, strategy_->exposed_s());
    if (observer_ != nullptr && sums) observer_->waits_since(strategy_->own_work_done());
    add_pass(result.loss, pass.loss);
    if (pass.unsmoothed.defined()) add_pass(result.unsmoothed, pass.unsmoothed);
    inputs_->prefetch();  // while the device computes
  } while (!batch->ends_step);
  result.samples = batch->step_samples;
  return result;
}

std::optional<TrainingStep::Gradients> TrainingStep::accumulate_in_stages(
    const std::function<void()>& prepare) {
  const bool is_ready = knows_modules_ && inputs_ != nullptr;  // the same on all ranks
  if (!is_ready && !stages_->prepare(micro_batch_.size(), prepare, shortage_)) return std::nullopt;
  const auto micro_batches = all_inputs_->micro_batches(finished_steps_, micro_batch_.size());
  const auto losses = stages_->run(*inputs_, micro_batches, wants_unsmoothed(), shortage_);
  if (!losses) return std::nullopt;
  Gradients result = {.loss = losses->loss,
                      .unsmoothed = losses->unsmoothed,
                      .samples = micro_batches.front().step_samples};
  for (const data::BatchPlan& each : micro_batches) result.own_samples += each.count;
  return result;
}

double TrainingStep::update(const Gradients& step) {
  const double learning_rate = components_.schedule->learning_rate(finished_steps_);
  timeline_.enter(Phase::kOptimizer);
  const std::vector<at::Tensor> gradients = defined_gradients();
  if (observer_ != nullptr && histograms_.falls_due(finished_steps_ + 1)) {
    timeline_.enter(Phase::kOther);
    histograms_.count(finished_steps_ + 1, components_.scaler->scale_of_loss());
    timeline_.enter(Phase::kOptimizer);
  }
  at::Tensor gradient_norm;
  if (job_.train.clip_norm > 0) {
    components_.scaler->unscale(gradients);
    gradient_norm = clip();
  } else {
    components_.scaler->check(gradients);
  }
  if (const auto found = components_.scaler->found_inf();
      found && components_.model.split() != nullptr) {
    group_.all_reduce(*found, distributed::Reduce::kMax, "the check of gradients");
  }
  components_.optimizer->step(learning_rate,
                              {components_.scaler->grad_scale(), components_.scaler->found_inf()});
  if (components_.ema) {
    components_.optimizer->finish_step();
    components_.ema->update(components_.scaler->found_inf());
  }
  if (const auto found = components_.scaler->found_inf()) step_start_.restore_buffers_if(*found);
  push_values(step, gradient_norm);
  components_.scaler->update();
  components_.optimizer->zero_grad();
  timeline_.enter(Phase::kOther);
  return learning_rate;
}

/// Clips the gradients. Returns their global norm before.
at::Tensor TrainingStep::clip() {
  // Where each rank has a part of the gradients.
  std::function<void(at::Tensor&)> sum_of_ranks;
  if (components_.model.sharded) {
    sum_of_ranks = [this](at::Tensor& squares) { components_.model.sharded->add_up(squares); };
  } else if (components_.model.pipeline) {
    sum_of_ranks = [this](at::Tensor& squares) { components_.model.pipeline->add_up(squares); };
  }
  std::vector<at::Tensor> counted, counted_elsewhere;
  for (const at::Tensor& parameter : parameters_) {
    if (!parameter.grad().defined()) continue;
    const bool is_elsewhere =
        components_.model.pipeline && components_.model.pipeline->counts_elsewhere(parameter);
    (is_elsewhere ? counted_elsewhere : counted).push_back(parameter.grad());
  }
  return optim::clip_grad_norm(counted, job_.train.clip_norm, sum_of_ranks, counted_elsewhere);
}

TakenStep TrainingStep::finish(const Gradients& gradients, double learning_rate) {
  finished_steps_ += 1;
  TakenStep step = {.record = {.step = finished_steps_,
                               .epoch = (finished_steps_ - 1) / components_.data.steps_per_epoch,
                               .samples = gradients.samples,
                               .learning_rate = learning_rate,
                               .phase_s = timeline_.take(),
                               .overlapped = inputs_->take_overlapped(),
                               .host_syncs = host_syncs_.take(),
                               .memory = memory_.stats()},
                    .own_work = {.samples = gradients.own_samples}};
  const double waited_s = step.record.phase_s[static_cast<size_t>(Phase::kDataWait)];
  step.own_work.busy_s =
      (stages_ ? stages_->take_compute_s() : strategy_->take_compute_s()) + waited_s;
  if (balancer_) balancer_->step(finished_steps_, step.own_work.samples, step.own_work.busy_s);
  if (finished_steps_ % kMemoryChecks == 0) memory_.leave_for_tensors();
  group_.step(finished_steps_);
  return step;
}

distributed::BucketLayout TrainingStep::buckets() {
  distributed::BucketLayout own = strategy_->layout();
  return components_.model.pipeline ? components_.model.pipeline->gather_buckets(own) : own;
}

telemetry::MemoryAccount TrainingStep::account() const {
  telemetry::MemoryAccount result = memory_account(job_.checkpoint, components_, memory_);
  result.modules = modules_;
  return result;
}

/// Samples of the global batch on the rank that has most.
int64_t TrainingStep::rank_share() const {
  const int64_t world = components_.model.data_world();
  return (*job_.batch.global + world - 1) / world;
}

/// Everything is as it was before the step that no rank has finished.
void TrainingStep::undo() {
  timeline_.enter(Phase::kOther);
  step_start_.restore();
  components_.optimizer->zero_grad();
  passes_.reset();
  checkpoint_room_.reset();
  strategy_->reset();
  memory_.release_cached();
}

/// No micro-batch fits: not one of `size`, which is as small as it can be.
void TrainingStep::refuse_to_shrink(int64_t size, std::string_view note) const {
  throw Error(Exit::kResource,
              "out of memory at step {} with micro-batch {}{}: {}. Name blocks in "
              "train.recompute, choose a smaller model or smaller samples, or {}",
              finished_steps_ + 1, size, note, account().text(), device::more_memory());
}

/// For the step to be taken again. Returns the size that was too large.
int64_t TrainingStep::make_room() {
  const int64_t size = std::min(micro_batch_.size(), rank_share());
  inputs_.reset();  // it starts again before the same samples
  memory_.release_cached();
  if (!micro_batch_.halve(finished_steps_, size)) refuse_to_shrink(size, "");
  log::warning(
      "out of memory with micro-batch {} at step {}; retrying the step with micro-batch {}, {} "
      "({})",
      size, finished_steps_ + 1, micro_batch_.size(),
      has_statistics(nn::whole_of(*components_.model.module))
          ? "where batch norms see fewer samples, which changes the result"
          : "which gives the same result, dropout's masks apart",
      std::exchange(shortage_, device::kShortElsewhere));
  if (observer_ != nullptr) observer_->micro_batch(finished_steps_ + 1, micro_batch_.size());
  return size;
}

void TrainingStep::start_inputs() {
  if (job_.distributed.balance == distributed::Balance::kThroughput && !group_.is_single_rank() &&
      !balancer_) {
    balancer_ = std::make_unique<Balancer>(components_.model.group, job_.data.prefetch + 4);
  }
  inputs_ = all_inputs_->training(finished_steps_, micro_batch_.size(),
                                  balancer_ ? balancer_->shares() : nullptr, timeline_);
}

std::vector<at::Tensor> TrainingStep::defined_gradients() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const auto& parameter : parameters_) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

bool TrainingStep::wants_unsmoothed() const {
  return job_.train.label_smoothing > 0 &&
         job_.telemetry.has_line(finished_steps_ + 1, components_.total_steps);
}

void TrainingStep::push_values(const Gradients& step, const at::Tensor& gradient_norm) {
  const at::Tensor zero = at::zeros({}, step.loss.options().dtype(at::kFloat));
  const auto as_float = [&](const at::Tensor& value) {
    return value.to(zero.device(), at::kFloat);  // a rank without gradients has its norm on the CPU
  };
  std::array<at::Tensor, kStepValueCount> values;
  values[kLoss] = as_float(step.loss);
  if (step.unsmoothed.defined()) {
    values[kUnsmoothedLoss] = as_float(step.unsmoothed);
  } else {
    values[kUnsmoothedLoss] =
        wants_unsmoothed() ? zero + std::numeric_limits<float>::quiet_NaN() : zero;
  }
  values[kGradientNorm] = gradient_norm.defined() ? as_float(gradient_norm) : zero;
  values[kFoundInf] = components_.scaler->found_inf().value_or(zero);
  values[kScale] = components_.scaler->enabled()
                       ? components_.scaler->state().at("grad_scaler.scale")
                       : zero + 1;
  const at::Tensor all = at::stack(values);
  // Every rank has its part of the losses; the rest they have in common.
  const int64_t losses = job_.train.label_smoothing > 0 ? 2 : 1;
  distributed::Pending sum = group_.start_all_reduce(
      all.narrow(0, kLoss, losses), distributed::Reduce::kSum, "the sum of losses");
  values_.push(finished_steps_ + 1, all, std::move(sum));
}

at::Tensor TrainingStep::evaluation_sums(SamplePredictions* samples) {
  passes_.release();  // an evaluation may need that memory
  return evaluator_->sums(micro_batch_.size(), samples);
}

std::optional<at::Tensor> TrainingStep::try_evaluation_sums() {
  passes_.release();
  return evaluator_->try_sums(micro_batch_.size());
}

int64_t TrainingStep::skipped_samples() const {
  return inputs_ == nullptr ? 0 : inputs_->loader().skipped();
}

int64_t TrainingStep::left_out_samples() const { return all_inputs_->left_out(); }

std::vector<data::Replacement> TrainingStep::take_replacements() {
  const int64_t steps = components_.data.steps_per_epoch;
  return all_inputs_->replacements().take_before(finished_steps_ / steps,
                                                 finished_steps_ % steps * *job_.batch.global);
}

}  // namespace brim::train
