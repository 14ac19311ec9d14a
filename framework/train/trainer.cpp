#include "framework/train/trainer.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/device/cuda_loader.h"
#include "framework/optim/clip.h"
#include "framework/train/evaluation.h"

namespace brim::train {
namespace {

constexpr const char* kElsewhere = "another rank is out of memory";
constexpr int64_t kMemoryChecks = 64;  // steps between looks at what is held beside tensors

}  // namespace

Trainer::Trainer(const JobConfig& job, Parts parts, const TrainState& state,
                 const RunFolder& folder, device::Memory& memory)
    : job_(job),
      parts_(std::move(parts)),
      group_(*parts_.group),
      folder_(folder),
      progress_(state),
      data_parallel_(parts_.group, *parts_.model, job_.distributed.gradients, state.buckets),
      votes_(parts_.group),
      profiler_(timeline_, parts_.device),
      host_syncs_(parts_.device),
      histograms_(*parts_.model, job.telemetry.histograms_every_steps),
      all_inputs_(job, parts_),
      memory_(memory),
      micro_batch_(job.batch.micro_or_all(), job.data.augment.mix.mixes() ? 2 : 1),
      step_start_(parts_),
      shortage_(kElsewhere),
      save_times_(job.checkpoint) {
  for (const auto& parameter : parts_.model->parameters()) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
  const bool records = job.train.cuda_graph && no_cuda_graph(job, parts_).empty();
  passes_.emplace(
      records ? device::cuda().backend->make_graph_recorder(std::max<int>(0, parts_.device.index()))
              : nullptr,
      parameters_,
      at::device(parts_.device)
          .dtype(parts_.precision.compute == at::kDouble ? at::kDouble : at::kFloat),
      [this](const auto& batch, const at::Tensor& share) { return forward(batch, share); });
  parts_.model->train();
  if (!group_.is_first() || folder_.path.empty()) return;
  if (job.checkpoint.enabled) store_.emplace(folder.checkpoints(), job.checkpoint.keep);
  recorder_.emplace(job_, folder_, parts_.device, timeline_, progress_.step, parts_.total_steps,
                    parts_.steps_per_epoch);
  if (parts_.input.kind() == nn::InputKind::kTokens) recorder_->count_tokens(parts_.input.length);
  if (parts_.eval_data != nullptr) sample_text_.emplace(job);
}

void Trainer::profile(ProfileSteps steps) {
  const std::string rank = group_.is_alone() ? "" : fmt::format(".rank-{}", group_.rank());
  const std::string name =
      fmt::format("profile-steps-{}-{}{}.pt.trace.json", steps.first, steps.last, rank);
  profiler_.record(steps, folder_.path / name, memory_);
}

void Trainer::train_step() {
  if (micro_batch_.grow(progress_.step)) {
    log::info("trying micro-batches of {} again", micro_batch_.size());
    inputs_.reset();
    passes_->reset();
  }
  while (!try_step()) make_room();
}

bool Trainer::try_step() {
  const HostSyncs::Watch watch(host_syncs_);
  step_start_.remember();
  const std::optional<Gradients> gradients = knows_modules_ ? compute_gradients() : watch_modules();
  if (gradients) update(*gradients);
  return gradients.has_value();
}

/// A first step tells which modules hold the memory.
std::optional<Trainer::Gradients> Trainer::watch_modules() {
  const ModuleMemory watch(*parts_.model, parts_.device);
  auto gradients = compute_gradients();
  modules_ = watch.largest(kLargestModules);
  knows_modules_ = gradients.has_value();
  if (recorder_ && knows_modules_) recorder_->memory(account());
  return gradients;
}

MemoryAccount Trainer::account() const {
  MemoryAccount result = memory_account(parts_, memory_);
  result.modules = modules_;
  return result;
}

std::optional<Trainer::Gradients> Trainer::compute_gradients() {
  try {
    return accumulate();
  } catch (const c10::OutOfMemoryError& error) {
    // Synchronized batch norms wait for this rank in the middle of the pass: there is no way on.
    if (job_.distributed.sync_batch_norm && !group_.is_alone()) throw;
    shortage_ = error.what_without_backtrace();
  }
  data_parallel_.give_up();  // here the pass has let go of its memory
  return std::nullopt;
}

// Reads top to bottom, in the order in which things happen.
std::optional<Trainer::Gradients> Trainer::accumulate() {
  if (inputs_ == nullptr) start_inputs();
  Gradients result;
  const data::DevicePrefetcher::Input* batch = nullptr;
  do {                        // each micro-batch
    batch = inputs_->next();  // phases data_wait, copy, augment
    const bool sums = batch->ends_step;
    result.own_samples += batch->count;

    timeline_.enter(Phase::kCommunication);
    data_parallel_.before_forward(sums);

    timeline_.enter(Phase::kForward);
    parts_.optimizer->begin_forward();
    const double share =
        batch->weight < batch->step_weight
            ? static_cast<double>(batch->weight) / static_cast<double>(batch->step_weight)
            : 1.0;
    const StepGraph::Pass pass =
        passes_->forward(batch->tensors, share, /*is_first=*/!result.loss.defined());
    parts_.optimizer->finish_step();
    timeline_.move(Phase::kForward, Phase::kCommunication, parts_.optimizer->waited_s());

    timeline_.enter(Phase::kBackward);
    if (!data_parallel_.backward(pass.scaled, sums, [&] { passes_->backward(pass); })) {
      return std::nullopt;
    }
    timeline_.move(Phase::kBackward, Phase::kCommunication, data_parallel_.exposed_s());
    if (recorder_ && sums) recorder_->communicates_since(data_parallel_.own_work_done());
    result.loss = result.loss.defined() ? result.loss + pass.loss : pass.loss;
    inputs_->prefetch();  // while the device computes
  } while (!batch->ends_step);
  result.samples = batch->step_samples;
  return result;
}

StepGraph::Pass Trainer::forward(const data::DeviceBatch& batch, const at::Tensor& share) {
  at::Tensor loss;
  {
    const amp::Autocast autocast(parts_.device.type(), parts_.precision);
    loss = parts_.task->loss(*parts_.model, batch);
  }
  if (share.defined()) loss = loss * share;
  return {loss.detach(), parts_.scaler->scale(loss)};
}

void Trainer::update(const Gradients& step) {
  const double learning_rate = parts_.schedule->learning_rate(progress_.step);
  timeline_.enter(Phase::kOptimizer);
  const std::vector<at::Tensor> gradients = defined_gradients();
  if (recorder_ && histograms_.falls_due(progress_.step + 1)) {
    histograms_.count(progress_.step + 1, parts_.scaler->scale_of_loss());
  }
  at::Tensor gradient_norm;
  if (job_.train.clip_norm > 0) {
    parts_.scaler->unscale(gradients);
    gradient_norm = optim::clip_grad_norm(gradients, job_.train.clip_norm);
  } else {
    parts_.scaler->check(gradients);
  }
  parts_.optimizer->step(learning_rate, {parts_.scaler->grad_scale(), parts_.scaler->found_inf()});
  if (parts_.ema) {
    parts_.optimizer->finish_step();
    parts_.ema->update(parts_.scaler->found_inf());
  }
  push_values(step.loss, gradient_norm);
  parts_.scaler->update();
  parts_.optimizer->zero_grad();
  progress_.step += 1;

  timeline_.enter(Phase::kOther);
  end_step(learning_rate, step.samples, step.own_samples);
}

/// A rank's part of the global batch, where it is the largest.
int64_t Trainer::rank_share() const {
  return (*job_.batch.global + group_.world() - 1) / group_.world();
}

void Trainer::make_room() {
  timeline_.enter(Phase::kOther);
  const int64_t size = std::min(micro_batch_.size(), rank_share());
  step_start_.restore();
  parts_.optimizer->zero_grad();
  passes_->reset();
  data_parallel_.reset();
  inputs_.reset();  // it starts again before the same samples
  memory_.release_cached();
  if (!micro_batch_.halve(progress_.step, size)) {
    throw Error(Exit::kResource,
                "out of memory at step {}, with micro-batches of {}: {}. Name blocks in "
                "train.recompute, choose a smaller model or smaller samples, or give the job more "
                "memory (device.memory_gib)",
                progress_.step + 1, size, account().text());
  }
  log::warning("step {} with {} samples a pass: {}. It is taken again from its start with {}; {}",
               progress_.step + 1, size, std::exchange(shortage_, kElsewhere), micro_batch_.size(),
               step_start_.has_statistics()
                   ? "batch norms now see fewer samples at a time, which changes what is learned"
                   : "what is learned stays the same");
}

void Trainer::end_step(double learning_rate, int64_t samples, int64_t own_samples) {
  const std::array<double, kPhaseCount> phase_s = timeline_.take();
  if (recorder_) {
    recorder_->step({.step = progress_.step,
                     .epoch = (progress_.step - 1) / parts_.steps_per_epoch,
                     .samples = samples,
                     .learning_rate = learning_rate,
                     .phase_s = phase_s,
                     .hidden = inputs_->take_hidden(),
                     .host_syncs = host_syncs_.take(),
                     .memory = memory_.stats()});
  }
  take_arrived_values(/*wait=*/false);
  if (progress_.step % kMemoryChecks == 0) memory_.leave_for_tensors();
  group_.step(progress_.step);
  const double waited_s = phase_s[static_cast<size_t>(Phase::kDataWait)];
  own_work_ = {.busy_s = data_parallel_.take_compute_s() + waited_s, .samples = own_samples};
  if (balancer_) balancer_->step(progress_.step, own_samples, own_work_.busy_s);
}

Exit Trainer::run() {
  if (progress_.step >= parts_.total_steps && !progress_.evaluation_due) {
    log::info("{}: finished already at step {}", folder_.path.string(), progress_.step);
    profiler_.finish(progress_.step);
    return Exit::kDone;
  }
  log::info("{} in {}", progress_.step == 0 ? "starting" : "going on", folder_.path.string());

  wishes_.stop = group_.is_alone() && stop_requested();
  for (;;) {
    if (progress_.evaluation_due && !evaluate()) break;
    if (progress_.step == parts_.total_steps || wishes_.stop) break;
    profiler_.before(progress_.step + 1);
    train_step();
    profiler_.after(progress_.step);
    exchange_wishes();
    progress_.evaluation_due = evaluation_falls_due();
    if (!progress_.evaluation_due && falls_due_to_save()) save(/*is_best=*/false);
  }

  const bool complete = progress_.step == parts_.total_steps && !progress_.evaluation_due;
  if (!save_times_.is_saved(progress_.step, progress_.evaluation_due)) save(/*is_best=*/false);
  votes_.finish();
  take_arrived_values(/*wait=*/true);
  if (store_) store_->wait();
  profiler_.finish(progress_.step);
  report_end(complete);
  group_.finish();
  return complete ? Exit::kDone : Exit::kStopped;
}

void Trainer::exchange_wishes() {
  wishes_ =
      votes_.exchange({.stop = stop_requested(), .checkpoint = save_times_.is_wished()}, own_work_);
  if (recorder_) recorder_->works(votes_.works());
}

void Trainer::start_inputs() {
  if (job_.distributed.balance == distributed::Balance::kThroughput && !group_.is_alone() &&
      !balancer_) {
    balancer_.emplace(parts_.group, job_.data.prefetch + 4);
  }
  inputs_ = all_inputs_.training(progress_.step, micro_batch_.size(),
                                 balancer_ ? balancer_->shares() : nullptr, timeline_);
}

std::vector<at::Tensor> Trainer::defined_gradients() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const auto& parameter : parameters_) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

void Trainer::push_values(const at::Tensor& loss, const at::Tensor& gradient_norm) {
  const at::Tensor zero = at::zeros({}, loss.options().dtype(at::kFloat));
  const auto as_float = [&](const at::Tensor& value) { return value.to(at::kFloat); };
  std::array<at::Tensor, kStepValueCount> values;
  values[kLoss] = as_float(loss);
  values[kGradientNorm] = gradient_norm.defined() ? as_float(gradient_norm) : zero;
  values[kFoundInf] = parts_.scaler->found_inf().value_or(zero);
  values[kScale] =
      parts_.scaler->enabled() ? parts_.scaler->state().at("grad_scaler.scale") : zero + 1;
  const at::Tensor all = at::stack(values);
  // Every rank has its part of the loss; the rest they have in common.
  distributed::Pending sum = group_.start_all_reduce(
      all.narrow(0, kLoss, 1), distributed::Reduce::kSum, "the sum of losses");
  values_.push(progress_.step + 1, all, std::move(sum));
}

void Trainer::take_arrived_values(bool wait) {
  while (const auto gradients = histograms_.pop(wait)) recorder_->gradients(*gradients);
  while (const auto arrived = values_.pop(wait)) {
    if (recorder_) recorder_->values(*arrived);
    const float loss = arrived->values[kLoss];
    if (job_.train.on_nan == OnNan::kFail && !std::isfinite(loss)) {
      throw Error(Exit::kNumeric,
                  "the loss of step {} is {}; the last good checkpoint is kept in {}. Lower "
                  "optimizer.learning_rate, clip gradients (train.clip_norm), or leave such steps "
                  "out (train.on_nan = \"skip\")",
                  arrived->step, loss, folder_.checkpoints().string());
    }
  }
}

bool Trainer::evaluation_falls_due() const {
  if (parts_.eval_data == nullptr) return false;
  if (progress_.step == parts_.total_steps) return true;
  if (progress_.step % parts_.steps_per_epoch != 0 || job_.eval.every_epochs == 0) return false;
  return progress_.step / parts_.steps_per_epoch % job_.eval.every_epochs == 0;
}

bool Trainer::evaluate() {
  timeline_.enter(Phase::kEvaluation);
  const double start_s = now_s();
  const std::optional<Metrics> metrics = evaluate_all();
  if (!metrics) return false;
  timeline_.enter(Phase::kOther);

  const int64_t epoch = (progress_.step - 1) / parts_.steps_per_epoch;
  if (recorder_) recorder_->evaluation(progress_.step, epoch, *metrics, now_s() - start_s);
  const BestBy best_by = parts_.task->best_by();
  double figure = 0.0, accuracy = 0.0;
  for (const auto& [name, value] : *metrics) {
    if (name == best_by.figure) figure = value;
    if (name == "top1") accuracy = value;
  }
  if (sample_text_) {
    const std::string text = sample_text_->write(parts_);
    if (!text.empty()) recorder_->sample(progress_.step, text);
  }
  parts_.schedule->observe({.loss = metrics->front().second, .accuracy = accuracy / 100.0});
  const bool is_best = !progress_.best || best_by.is_better(figure, *progress_.best);
  if (is_best) progress_.best = figure;
  progress_.evaluation_due = false;
  if (is_best || falls_due_to_save()) save(is_best);
  return true;
}

bool Trainer::is_stopped_anywhere() {
  wishes_.stop = group_.any(stop_requested(), "the vote on a stop");
  return wishes_.stop;
}

std::optional<Metrics> Trainer::evaluate_all() {
  const at::NoGradGuard no_grad;
  parts_.optimizer->finish_step();
  distributed::broadcast_buffers(group_, *parts_.model);
  const at::Tensor sums = evaluation_sums();
  if (is_stopped_anywhere()) return std::nullopt;
  group_.all_reduce(sums, distributed::Reduce::kSum, "the sum of evaluations");
  return parts_.task->metrics(sums.cpu());
}

at::Tensor Trainer::evaluation_sums() {
  passes_->release();  // an evaluation may need that memory
  return train::evaluation_sums(parts_, all_inputs_, micro_batch_.size());
}

bool Trainer::falls_due_to_save() const {
  return save_times_.falls_due(progress_.step, wishes_.checkpoint);
}

void Trainer::save(bool is_best) {
  if (!job_.checkpoint.enabled) return;
  timeline_.enter(Phase::kCheckpoint);
  take_arrived_values(/*wait=*/true);  // a loss that is not finite must not be saved
  parts_.optimizer->finish_step();
  distributed::broadcast_buffers(group_, *parts_.model);
  require_finite_weights(*parts_.model, folder_.checkpoints());
  progress_.buckets = data_parallel_.layout();
  const checkpoint::Snapshot state = snapshot(job_, parts_, progress_);
  if (recorder_) recorder_->flush();
  if (store_) store_->save(state, is_best);
  save_times_.saved(progress_.step, progress_.evaluation_due);
  wishes_.checkpoint = false;
  timeline_.enter(Phase::kOther);
}

void Trainer::report_end(bool complete) {
  if (recorder_) {
    recorder_->finish();
    if (recorder_->skipped_steps() > 0) {
      log::warning("{} steps were skipped because their gradients were not finite",
                   recorder_->skipped_steps());
    }
  }
  if (inputs_ != nullptr && inputs_->loader().skipped() > 0) {
    log::warning("{} training samples could not be read and were replaced by others",
                 inputs_->loader().skipped());
  }
  if (recorder_) recorder_->memory(account());
  if (complete) {
    log::info("done: {} steps{}; everything is in {}", progress_.step,
              progress_.best
                  ? fmt::format(", best {} {:.4g}", parts_.task->best_by().figure, *progress_.best)
                  : std::string(),
              folder_.path.string());
  } else if (!job_.checkpoint.enabled) {
    log::info("stopped at step {}; nothing was saved, as checkpoint.enabled = false asks",
              progress_.step);
  } else {
    log::info("stopped at step {}, state saved; go on with --resume auto --output {}",
              progress_.step, folder_.path.string());
  }
}

}  // namespace brim::train
