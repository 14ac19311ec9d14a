#include "framework/train/trainer.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "framework/base/host.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/device/shared_cores.h"
#include "framework/train/callbacks.h"
#include "framework/train/evaluation.h"
#include "framework/train/run/job_record.h"

namespace brim::train {

Trainer::Trainer(const JobConfig& job, TrainingComponents components, const TrainState& state,
                 const RunFolder& folder, device::Memory& memory)
    : job_(job),
      components_(std::move(components)),
      group_(*components_.model.group),
      folder_(folder),
      progress_(state),
      control_(components_.model.group),
      memory_(memory),
      step_(job, components_, state.step, state.buckets, memory),
      profiler_(step_.timeline(), components_.model.device),
      save_times_(job.checkpoint) {
  begin_history();
  // Ranks that share the weights write the text together.
  if (components_.data.eval != nullptr &&
      (group_.is_main() || components_.model.shares_weights())) {
    sample_text_.emplace(job.train.task->prompt(), job.data.source,
                         static_cast<uint64_t>(job.run.seed));
  }
  const std::string place = fmt::format("{} on {}", components_.model.device.str(), host_name());
  std::vector<std::string> places = group_.all_gather(place, "where the ranks run");
  if (!group_.is_main()) return;
  if (job.checkpoint.enabled) store_.emplace(folder.checkpoints(), job.checkpoint.keep);
  recorder_.emplace(job_, folder_, components_.model.device, step_.timeline(), progress_.step,
                    components_.total_steps, components_.data.steps_per_epoch);
  if (!group_.is_single_rank()) recorder_->places(std::move(places));
  step_.observe(*recorder_);
  if (components_.model.input.kind() == nn::InputKind::kTokens)
    recorder_->count_tokens(components_.model.input.length);
}

/// Warns where the checkpoint's steps have seen other data.
void Trainer::begin_history() {
  const HistoryPart part = {
      .after_step = progress_.step,
      .ranks = components_.model.data_world(),
      .shares = shares_of(job_),
      .stages = components_.model.pipeline ? components_.model.pipeline->stages() : 1,
      .data = group_.is_main() ? data::digest_of(*components_.data.train) : std::string()};
  const std::vector<HistoryPart>& parts = progress_.history.parts;
  if (!parts.empty() && are_other_data(parts.back(), part)) {
    log::warning(
        "the training data are others than before step {}, though as many: other labels, names, "
        "tokens or another order. Samples of an epoch under way may be seen twice or not at all",
        progress_.step + 1);
  }
  progress_.history.begin(part);
}

void Trainer::profile(ProfileSteps steps) {
  const std::string rank = group_.is_single_rank() ? "" : fmt::format(".rank-{}", group_.rank());
  const std::string name =
      fmt::format("profile-steps-{}-{}{}.pt.trace.json", steps.first, steps.last, rank);
  profiler_.record(steps, folder_.path / name, memory_);
}

/// Those that have this rank's modules, too.
distributed::Group& Trainer::ranks_with_same_buffers() {
  return components_.model.pipeline ? *components_.model.pipeline->same_stage() : group_;
}

Exit Trainer::run() {
  if (progress_.step >= components_.total_steps && !progress_.evaluation_due) {
    log::info("{}: finished already at step {}", folder_.path.string(), progress_.step);
    profiler_.finish(progress_.step);
    return Exit::kDone;
  }
  log::info("{} in {}", progress_.step == 0 ? "starting" : "resuming", folder_.path.string());

  const int64_t first_step = progress_.step;
  requests_.stop = group_.is_single_rank() && stop_requested();
  try {
    for (;;) {
      if (progress_.evaluation_due && !evaluate()) break;
      if (progress_.step == components_.total_steps || requests_.stop) break;
      profiler_.before(progress_.step + 1);
      const std::optional<TakenStep> taken = step_.take();
      if (!taken) break;  // a stop was asked for before it had its data
      progress_.step = taken->record.step;
      device::SharedCores::count_step();
      if (recorder_) recorder_->step(taken->record);
      take_arrived_values(/*wait=*/false);
      tell_of_checkpoint(/*wait=*/false);
      profiler_.after(progress_.step);
      exchange_requests(taken->own_work);
      progress_.evaluation_due = evaluation_falls_due();
      if (!progress_.evaluation_due && falls_due_to_save()) save(/*is_best=*/false);
    }
  } catch (const Error& error) {
    if (error.status() != Exit::kData) throw;
    if (!group_.is_single_rank()) {
      add_resume_hint(error);
    } else if (progress_.step > first_step) {
      keep_steps();
    }
    throw;
  }

  const bool complete = progress_.step == components_.total_steps && !progress_.evaluation_due;
  if (!save_times_.is_saved(progress_.step, progress_.evaluation_due)) save(/*is_best=*/false);
  control_.finish();
  if (recorder_) recorder_->works(control_.works());
  take_arrived_values(/*wait=*/true);
  tell_of_checkpoint(/*wait=*/true);
  profiler_.finish(progress_.step);
  report_end(complete);
  group_.finish();
  return complete ? Exit::kDone : Exit::kStopped;
}

/// Throws an error of the data again, with what to resume from. With several ranks nothing can be
/// saved any more: the others wait for this one within the step.
void Trainer::add_resume_hint(const Error& error) const {
  if (checkpoint::list_checkpoints(folder_.checkpoints()).empty()) return;
  throw Error(Exit::kData, "{}; --resume auto continues from the newest checkpoint", error.what());
}

/// Saves the finished steps of a single rank, before an error of its data ends the run.
void Trainer::keep_steps() {
  const bool is_saved = save_times_.is_saved(progress_.step, progress_.evaluation_due);
  if (!job_.checkpoint.enabled || is_saved) return;
  try {
    save(/*is_best=*/false);
    tell_of_checkpoint(/*wait=*/true);
    log::info("step {} is saved; --resume auto continues from it", progress_.step);
  } catch (const Error& error) {
    log::warning("step {} could not be saved: {}", progress_.step, error.what());
  }
}

void Trainer::exchange_requests(const telemetry::RankWork& own_work) {
  requests_ = control_.exchange(
      {.stop = stop_requested(), .checkpoint = save_times_.is_requested()}, own_work);
  if (recorder_) recorder_->works(control_.works());
}

void Trainer::take_arrived_values(bool wait) {
  while (const auto gradients = step_.histograms().pop(wait)) recorder_->gradients(*gradients);
  while (const auto arrived = step_.values().pop(wait)) {
    if (recorder_) recorder_->values(*arrived);
    const float loss = arrived->values[kLoss];
    if (job_.train.on_nan == OnNan::kFail && !std::isfinite(loss)) {
      if (recorder_) recorder_->flush();
      const char* advice =
          arrived->step == 1
              ? "No update has been made yet: look for such numbers in the data and in the weights "
                "of model.pretrained"
              : "Lower optimizer.learning_rate, clip gradients (train.clip_norm), or leave such "
                "steps out (train.on_nan = \"skip\")";
      throw Error(Exit::kNumeric, "the loss of step {} is {}; {}. {}", arrived->step,
                  std::isnan(loss) ? std::abs(loss) : loss, describe_last_good(folder_), advice);
    }
    for (const auto& each : callbacks()) each->on_step(arrived->step, loss);
  }
}

bool Trainer::evaluation_falls_due() const {
  if (components_.data.eval == nullptr) return false;
  if (progress_.step == components_.total_steps) return true;
  if (progress_.step % components_.data.steps_per_epoch != 0 || job_.eval.every_epochs == 0)
    return false;
  return progress_.step / components_.data.steps_per_epoch % job_.eval.every_epochs == 0;
}

bool Trainer::evaluate() {
  step_.timeline().enter(Phase::kEvaluation);
  const double start_s = now_s();
  const std::optional<Metrics> metrics = evaluate_all();
  if (!metrics) return false;
  step_.timeline().enter(Phase::kOther);
  take_arrived_values(/*wait=*/true);  // steps are told of before what follows them

  const int64_t epoch = (progress_.step - 1) / components_.data.steps_per_epoch;
  if (recorder_) recorder_->evaluation(progress_.step, epoch, *metrics, now_s() - start_s);
  for (const auto& each : callbacks()) each->on_evaluation(progress_.step, *metrics);
  const BestBy best_by = components_.task->best_by();
  double metric = 0.0, accuracy = 0.0;
  for (const auto& [name, value] : *metrics) {
    if (name == best_by.metric) metric = value;
    if (name == "top1") accuracy = value;
  }
  if (sample_text_) {
    const std::string text = sample_text_->write(components_.model, components_.ema.get());
    if (recorder_ && !text.empty()) recorder_->sample(progress_.step, text);
  }
  const double loss = metrics->front().second;
  components_.schedule->observe({.loss = loss, .accuracy = accuracy / 100.0});
  const Score score{.metric = metric,
                    .loss = std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity()};
  const bool is_best =
      std::isfinite(metric) && (!progress_.best || best_by.is_better(score, *progress_.best));
  if (is_best) progress_.best = score;
  progress_.evaluation_due = false;
  if (is_best || falls_due_to_save()) save(is_best);
  return true;
}

bool Trainer::is_stopped_anywhere() {
  requests_.stop = group_.any(stop_requested(), "the stop request");
  return requests_.stop;
}

std::optional<Metrics> Trainer::evaluate_all() {
  const at::NoGradGuard no_grad;
  components_.optimizer->finish_step();
  distributed::broadcast_buffers(ranks_with_same_buffers(), *components_.model.module);
  SamplePredictions samples(progress_.step);
  const bool is_shown =
      group_.rank() == rank_of_samples() && components_.data.eval->images() != nullptr;
  const at::Tensor sums = step_.evaluation_sums(is_shown ? &samples : nullptr);
  if (is_stopped_anywhere()) return std::nullopt;
  if (!samples.is_empty()) samples_ = std::move(samples);
  group_.all_reduce(sums, distributed::Reduce::kSum, "the sum of evaluations");
  const at::Tensor on_host = sums.cpu();
  if (recorder_) {
    recorder_->classes(
        classes_record(components_.task->by_class(on_host), class_names(*components_.data.train)));
  }
  return metrics_of(*components_.task, on_host);
}

bool Trainer::falls_due_to_save() const {
  return save_times_.falls_due(progress_.step, requests_.checkpoint);
}

void Trainer::save(bool is_best) {
  if (!job_.checkpoint.enabled) return;
  step_.timeline().enter(Phase::kCheckpoint);
  take_arrived_values(/*wait=*/true);  // a loss that is not finite must not be saved
  components_.optimizer->finish_step();
  distributed::broadcast_buffers(ranks_with_same_buffers(), *components_.model.module);
  require_finite_weights(components_.model, folder_);
  progress_.buckets = step_.buckets();
  collect_replacements();
  checkpoint::Snapshot state = snapshot(job_, components_, progress_, store_ ? &*store_ : nullptr);
  if (recorder_) recorder_->flush();
  if (store_) {
    tell_of_checkpoint(/*wait=*/true);
    store_->save(std::move(state), is_best);
    writing_ = progress_.step;
  }
  save_times_.saved(progress_.step, progress_.evaluation_due);
  requests_.checkpoint = false;
  step_.timeline().enter(Phase::kOther);
}

/// Those of all ranks since the last checkpoint become part of the run's history.
void Trainer::collect_replacements() {
  if (!job_.data.skip_bad) return;
  std::vector<data::Replacement> own = step_.take_replacements();
  if (components_.model.pipeline && !components_.model.pipeline->is_first())
    own.clear();  // the same samples
  if (!group_.any(!own.empty(), "the question whether samples were replaced")) return;
  for (const std::string& text :
       group_.all_gather(to_json(own).dump(), "the samples that were replaced")) {
    progress_.history.add(read_replacements(nlohmann::json::parse(text)));
  }
}

/// Throws what the writing failed with.
void Trainer::tell_of_checkpoint(bool wait) {
  if (!writing_ || !(wait || store_->is_idle())) return;
  store_->wait();
  const int64_t step = *std::exchange(writing_, std::nullopt);
  for (const auto& each : callbacks()) each->on_checkpoint(step, *store_->latest());
}

/// The rank that sees how single samples of the evaluation come out.
int64_t Trainer::rank_of_samples() const {
  return components_.model.pipeline ? components_.model.pipeline->stages() - 1 : 0;
}

/// Rank 0 writes those of the last evaluation that people are shown.
void Trainer::report_samples() {
  std::string chosen;
  if (samples_) chosen = samples_->chosen(static_cast<uint64_t>(job_.run.seed)).dump();
  if (components_.model.pipeline) {
    chosen = group_.broadcast(chosen, "the samples of the evaluation", rank_of_samples());
  }
  if (!recorder_ || chosen.empty()) return;
  recorder_->samples(write_samples(nlohmann::json::parse(chosen), *components_.data.eval->images(),
                                   class_names(*components_.data.train), folder_.path));
}

/// Of each stage, over the replicas, from all ranks' own; empty without stages.
std::vector<int64_t> Trainer::stage_peaks(int64_t own) {
  if (!components_.model.pipeline) return {};
  std::vector<int64_t> peaks(static_cast<size_t>(components_.model.pipeline->stages()));
  size_t rank = 0;
  for (const std::string& text : group_.all_gather(std::to_string(own), "the stages' memory")) {
    int64_t& peak = peaks[rank++ % peaks.size()];
    peak = std::max<int64_t>(peak, std::stoll(text));
  }
  return peaks;
}

void Trainer::report_end(bool complete) {
  if (recorder_) recorder_->finish();
  report_samples();
  if (recorder_ && recorder_->skipped_steps() > 0) {
    const int64_t count = recorder_->skipped_steps();
    log::warning("{} step{} skipped because {} gradients were not finite", format_count(count),
                 count == 1 ? " was" : "s were", count == 1 ? "its" : "their");
  }
  const std::string_view by = group_.is_single_rank() ? "" : " by this rank";
  if (const int64_t skipped = step_.skipped_samples(); skipped > 0) {
    log::warning("{} could not be read{} and {} replaced by {}",
                 format_plural(skipped, "training sample"), by, skipped == 1 ? "was" : "were",
                 skipped == 1 ? "another" : "others");
  }
  if (const int64_t left_out = step_.left_out_samples(); left_out > 0) {
    log::warning("{} could not be read{} and {} left out of the metrics",
                 format_plural(left_out, "evaluation sample"), by, left_out == 1 ? "was" : "were");
  }
  telemetry::MemoryAccount memory = step_.account();
  memory.stage_peak_bytes = stage_peaks(memory.peak_bytes);
  if (recorder_) recorder_->memory(memory);
  std::string stages;
  for (const int64_t bytes : memory.stage_peak_bytes) {
    stages += (stages.empty() ? ", by stage " : " and ") + format_bytes(bytes);
  }
  log::info("peak memory: tensors {}{}{}; the cap is {}", format_bytes(memory.peak_bytes), stages,
            components_.model.device.is_cpu() && memory.outside_bytes > 0
                ? fmt::format(", the rest of the process {}", format_bytes(memory.outside_bytes))
                : std::string(),
            format_bytes(memory.limit_bytes));
  if (complete) {
    log::info("done: {}{}; everything is in {}", format_plural(progress_.step, "step"),
              progress_.best ? fmt::format(", best {} {}", components_.task->best_by().metric,
                                           format_number(progress_.best->metric))
                             : std::string(),
              folder_.path.string());
  } else if (!job_.checkpoint.enabled) {
    log::info("stopped at step {}; nothing was saved because checkpoint.enabled = false",
              progress_.step);
  } else {
    log::info(
        "stopped at step {}, state saved; resume with: trainer train {} --resume auto "
        "--output {}{}",
        progress_.step, shell_word(folder_.recipe().string()), shell_word(folder_.path.string()),
        job_.telemetry.exec.empty() ? "" : " --trust-library");
  }
  if (recorder_) recorder_->end_watchers();
}

}  // namespace brim::train
