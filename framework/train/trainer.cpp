#include "framework/train/trainer.h"

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/optim/clip.h"

namespace brim::train {

Trainer::Trainer(const JobConfig& job, Parts parts, const TrainState& state,
                 const RunFolder& folder)
    : job_(job),
      parts_(std::move(parts)),
      folder_(folder),
      store_(folder.checkpoints(), job.checkpoint.keep),
      progress_(state),
      recorder_(job_, folder_, progress_.step, parts_.total_steps, parts_.steps_per_epoch),
      normalizer_(data::make_normalizer(job.data.normalization(parts_.train_data->shape().channels),
                                        parts_.device)),
      saved_at_s_(now_s()) {
  for (const auto& parameter : parts_.model->parameters()) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
  parts_.model->train();
}

// Reads top to bottom, in the order in which things happen.
void Trainer::train_step() {
  if (inputs_ == nullptr) start_inputs();
  const double learning_rate = parts_.schedule->learning_rate(progress_.step);
  at::Tensor step_loss;  // mean over the global batch
  const data::DevicePrefetcher::Input* batch = nullptr;
  do {                        // each micro-batch
    batch = inputs_->next();  // phases data_wait and copy

    timeline_.enter(Phase::kForward);
    at::Tensor loss;
    {
      const amp::Autocast autocast(parts_.device.type(), parts_.precision);
      loss = parts_.task->loss(*parts_.model, batch->tensors);
    }
    if (batch->count < batch->step_samples) {
      loss = loss * (static_cast<double>(batch->count) / static_cast<double>(batch->step_samples));
    }

    timeline_.enter(Phase::kBackward);
    parts_.scaler->scale(loss).backward();
    step_loss = step_loss.defined() ? step_loss + loss.detach() : loss.detach();
    inputs_->prefetch();  // while the device computes
  } while (!batch->ends_step);

  timeline_.enter(Phase::kOptimizer);
  const std::vector<at::Tensor> gradients = defined_gradients();
  at::Tensor gradient_norm;
  if (job_.train.clip_norm > 0) {
    parts_.scaler->unscale(gradients);
    gradient_norm = optim::clip_grad_norm(gradients, job_.train.clip_norm);
  } else {
    parts_.scaler->check(gradients);
  }
  parts_.optimizer->step(learning_rate, {parts_.scaler->grad_scale(), parts_.scaler->found_inf()});
  if (parts_.ema) parts_.ema->update(parts_.scaler->found_inf());
  push_values(step_loss, gradient_norm);
  parts_.scaler->update();
  parts_.optimizer->zero_grad();
  progress_.step += 1;

  timeline_.enter(Phase::kOther);
  recorder_.step({.step = progress_.step,
                  .epoch = (progress_.step - 1) / parts_.steps_per_epoch,
                  .samples = batch->step_samples,
                  .learning_rate = learning_rate,
                  .phase_s = timeline_.take(),
                  .hidden = inputs_->take_hidden()});
  take_arrived_values(/*wait=*/false);
}

Exit Trainer::run() {
  if (progress_.step >= parts_.total_steps && !progress_.evaluation_due) {
    log::info("{}: finished already at step {}", folder_.path.string(), progress_.step);
    return Exit::kDone;
  }
  log::info("{} in {}", progress_.step == 0 ? "starting" : "going on", folder_.path.string());

  for (;;) {
    if (progress_.evaluation_due && !evaluate()) break;
    if (progress_.step == parts_.total_steps || stop_requested()) break;
    train_step();
    progress_.evaluation_due = evaluation_falls_due();
    if (checkpoint_falls_due() && !progress_.evaluation_due) save(/*is_best=*/false);
  }

  const bool complete = progress_.step == parts_.total_steps && !progress_.evaluation_due;
  if (saved_step_ != progress_.step || saved_evaluation_due_ != progress_.evaluation_due) {
    save(/*is_best=*/false);
  }
  store_.wait();
  report_end(complete);
  return complete ? Exit::kDone : Exit::kStopped;
}

data::InputOptions Trainer::input_options() const {
  return {.shape = parts_.train_data->shape(),
          .normalizer = normalizer_,
          .channels_last = parts_.channels_last,
          .mix = job_.data.augment.mix};
}

void Trainer::start_inputs() {
  data::LoaderOptions options = job_.data.train_options();
  options.global_batch = job_.batch.global;
  options.micro_batch = job_.batch.micro.value_or(job_.batch.global);
  options.seed = static_cast<uint64_t>(job_.run.seed);
  options.order = parts_.order;
  inputs_ = std::make_unique<data::DevicePrefetcher>(
      *parts_.train_data, options, input_options(), timeline_,
      progress_.step / parts_.steps_per_epoch, progress_.step % parts_.steps_per_epoch);
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
  values_.push(progress_.step + 1, at::stack(values));
}

void Trainer::take_arrived_values(bool wait) {
  while (const auto arrived = values_.pop(wait)) {
    recorder_.values(*arrived);
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
  recorder_.evaluation(progress_.step, epoch, *metrics, now_s() - start_s);
  double figure = 0.0;
  for (const auto& [name, value] : *metrics) {
    if (name == parts_.task->best_by()) figure = value;
  }
  parts_.schedule->observe({.loss = metrics->front().second, .accuracy = figure / 100.0});
  const bool is_best = !progress_.best || figure > *progress_.best;
  if (is_best) progress_.best = figure;
  progress_.evaluation_due = false;
  if (is_best || checkpoint_falls_due()) save(is_best);
  return true;
}

std::optional<Metrics> Trainer::evaluate_all() {
  const at::NoGradGuard no_grad;
  std::optional<optim::Ema::Swap> averaged;
  if (parts_.ema) averaged.emplace(*parts_.ema);
  parts_.model->eval();
  data::LoaderOptions options = job_.data.eval_options();
  options.global_batch = job_.eval.batch.value_or(job_.batch.micro.value_or(job_.batch.global));
  options.micro_batch = options.global_batch;
  Timeline timeline;  // of its own: the step's is in its phase `evaluation`
  data::DevicePrefetcher inputs(*parts_.eval_data, options, input_options(), timeline);
  at::Tensor sums;
  while (const auto* batch = stop_requested() ? nullptr : inputs.next()) {
    const amp::Autocast autocast(parts_.device.type(), parts_.precision);
    const at::Tensor part = parts_.task->evaluation_sums(*parts_.model, batch->tensors);
    inputs.prefetch();
    sums = sums.defined() ? sums + part : part;
  }
  parts_.model->train();
  if (stop_requested()) return std::nullopt;
  return parts_.task->metrics(sums.cpu());
}

bool Trainer::checkpoint_falls_due() const {
  if (saved_step_ == progress_.step) return false;
  const CheckpointConfig& when = job_.checkpoint;
  const bool by_steps = when.every_steps > 0 && progress_.step % when.every_steps == 0;
  const bool by_time = when.every_minutes > 0 && now_s() - saved_at_s_ >= when.every_minutes * 60;
  return by_steps || by_time;
}

void Trainer::save(bool is_best) {
  timeline_.enter(Phase::kCheckpoint);
  take_arrived_values(/*wait=*/true);  // a loss that is not finite must not be saved
  require_finite_weights(*parts_.model, folder_.checkpoints());
  recorder_.flush();
  store_.save(snapshot(job_, parts_, progress_), is_best);
  saved_step_ = progress_.step;
  saved_evaluation_due_ = progress_.evaluation_due;
  saved_at_s_ = now_s();
  timeline_.enter(Phase::kOther);
}

void Trainer::report_end(bool complete) {
  recorder_.flush();
  if (recorder_.skipped_steps() > 0) {
    log::warning("{} steps were skipped because their gradients were not finite",
                 recorder_.skipped_steps());
  }
  if (inputs_ != nullptr && inputs_->loader().skipped() > 0) {
    log::warning("{} training samples could not be read and were replaced by others",
                 inputs_->loader().skipped());
  }
  if (complete) {
    log::info("done: {} steps{}; everything is in {}", progress_.step,
              progress_.best
                  ? fmt::format(", best {} {:.4g}", parts_.task->best_by(), *progress_.best)
                  : std::string(),
              folder_.path.string());
  } else {
    log::info("stopped at step {}, state saved; go on with --resume auto --output {}",
              progress_.step, folder_.path.string());
  }
}

}  // namespace brim::train
