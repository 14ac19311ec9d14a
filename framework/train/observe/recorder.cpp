#include "framework/train/observe/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "framework/base/descriptor.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/base/version.h"
#include "framework/distributed/deadline.h"
#include "framework/telemetry/run_record.h"
#include "framework/telemetry/tensorboard/recipe_events.h"
#include "framework/train/run/job_record.h"

namespace brim::train {
namespace {

/// The files of an earlier part of the run must end where this part begins. What they told of later
/// steps is computed again, which run.json keeps. `age_s` becomes the age that the run had reached,
/// steps that are lost included. Returns the file of metrics.
std::filesystem::path cut_back(const RunFolder& folder, int64_t finished_steps, double& age_s) {
  const int64_t last_step = telemetry::cut_back_metrics(
      folder.metrics(), finished_steps, [&](const nlohmann::json& line) {
        for (const char* key : {"run_age_s", "process_age_s"}) {
          const auto found = line.find(key);
          if (found != line.end() && found->is_number()) {
            age_s = std::max(age_s, found->get<double>());
          }
        }
      });
  if (last_step > finished_steps) {
    telemetry::add_to_record(folder.record(), "repeats_to", last_step);
  }
  telemetry::cut_back_events(folder.path, finished_steps);
  return folder.metrics();
}

/// Caps that are none are left out.
nlohmann::json memory_metrics(const device::MemoryStats& memory) {
  nlohmann::json metrics = {{"allocated_bytes", memory.allocated_bytes},
                            {"reserved_bytes", memory.reserved_bytes},
                            {"peak_bytes", memory.peak_bytes}};
  if (memory.cap_bytes < std::numeric_limits<int64_t>::max()) {
    metrics["cap_bytes"] = memory.cap_bytes;
  }
  return metrics;
}

double sum(const std::array<double, kPhaseCount>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

}  // namespace

Recorder::Recorder(const JobConfig& job, const RunFolder& folder, c10::Device device,
                   Timeline& timeline, int64_t finished_steps, int64_t total_steps,
                   int64_t steps_per_epoch)
    : rules_(job.telemetry),
      last_step_(total_steps),
      shows_gradient_norm_(job.train.clip_norm > 0),
      shows_unsmoothed_(job.train.label_smoothing > 0),
      record_(folder.record()),
      metrics_(cut_back(folder, finished_steps, earlier_s_)),
      reached_step_(finished_steps),
      has_age_(finished_steps >= total_steps) {
  if (device.is_cuda()) {
    device_ = std::make_unique<telemetry::DeviceMetrics>(std::max<int>(0, device.index()));
    phases_ = std::make_unique<DevicePhases>(timeline, device::current_stream(device));
  }
  if (const auto target = telemetry::read_prometheus_target(job.telemetry.prometheus)) {
    prometheus_ = std::make_unique<telemetry::Prometheus>(
        *target,
        telemetry::Labels{{"run", job.run.name},
                          {"folder", folder.path.string()},
                          {"device", device.str()},
                          {"version", brim_version()},
                          {"steps", std::to_string(total_steps)}},
        folder.path);
  }
  if (!job.telemetry.exec.empty()) {
    program_ = std::make_unique<telemetry::MetricsProgram>(job.telemetry.exec, folder.path);
  }
  if (job.telemetry.tensorboard) {
    events_ = std::make_unique<telemetry::EventFile>(folder.path);
    telemetry::add_recipe(*events_, finished_steps,
                          read_file(folder.recipe(), Exit::kResource, telemetry::kLongestRunFile));
  }
  state_.epochs = (total_steps + steps_per_epoch - 1) / steps_per_epoch;
  state_.steps = total_steps;
  distributed::before_end_of_process([this] { write_age(); });
}

Recorder::~Recorder() {
  distributed::before_end_of_process(nullptr);
  try {
    flush();
  } catch (const Error&) {
    // What ends the run is told already.
  }
  end_watchers();
}

void Recorder::step(const StepRecord& record) {
  if (phases_ == nullptr) return count(record);
  phases_->end_step();
  enqueued_.push_back(record);
  count_passed_steps(/*wait_for=*/0);
}

void Recorder::waits_since(const std::shared_ptr<const device::StreamEvent>& moment) {
  if (phases_ != nullptr && moment != nullptr) {
    phases_->begin(Phase::kCommunication, moment);
  }
}

/// Counts the steps that the device is through with; waits for those up to step `wait_for`.
void Recorder::count_passed_steps(int64_t wait_for) {
  while (!enqueued_.empty()) {
    StepRecord& oldest = enqueued_.front();
    const auto phases = phases_->pop(/*wait=*/oldest.step <= wait_for);
    if (!phases) return;
    oldest.phase_s = *phases;
    count(oldest);
    enqueued_.pop_front();
  }
}

void Recorder::count(const StepRecord& record) {
  window_.steps += 1;
  window_.samples += record.samples;
  for (int phase = 0; phase < kPhaseCount; ++phase) window_.phase_s[phase] += record.phase_s[phase];
  window_.overlapped.decode_s += record.overlapped.decode_s;
  window_.overlapped.decode_cpu_s += record.overlapped.decode_cpu_s;
  window_.overlapped.decode_wall_s += record.overlapped.decode_wall_s;
  window_.overlapped.copy_s += record.overlapped.copy_s;
  window_.host_syncs += record.host_syncs;
  if (rules_.has_line(record.step, last_step_)) {
    pending_.push_back({record, std::exchange(window_, {}), process_age_s()});
  }

  state_.epoch = record.epoch + 1;
  state_.step = record.step;
  reached_step_ = record.step;
  state_.step_s = sum(record.phase_s) - record.phase_s[static_cast<size_t>(Phase::kEvaluation)] -
                  record.phase_s[static_cast<size_t>(Phase::kCheckpoint)];
  const int64_t counted = record.samples * std::max<int64_t>(1, tokens_per_sample_);
  state_.samples_per_s = static_cast<double>(counted) / state_.step_s;
  state_.learning_rate = record.learning_rate;
  unshown_.push_back(state_);
}

void Recorder::values(const ArrivedValues& arrived) {
  count_passed_steps(arrived.step);
  while (!unshown_.empty() && unshown_.front().step <= arrived.step) {
    unshown_.front().loss = arrived.values[kLoss];
    progress_.update(unshown_.front());
    unshown_.pop_front();
  }
  if (arrived.values[kFoundInf] > 0) ++skipped_steps_;
  if (pending_.empty() || pending_.front().record.step != arrived.step) return;
  write_line(pending_.front(), arrived);
  pending_.pop_front();
}

void Recorder::write_line(const PendingLine& line, const ArrivedValues& arrived) {
  const auto& [record, window, age_s] = line;
  const double seconds = sum(window.phase_s);
  const auto steps = static_cast<double>(window.steps);
  const double samples_per_s = static_cast<double>(window.samples) / seconds;

  nlohmann::json phases;
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    phases[std::string(phase_name(static_cast<Phase>(phase)))] = window.phase_s[phase] / steps;
  }
  const nlohmann::json overlapped = {{"decode", window.overlapped.decode_s / steps},
                                     {"decode_cpu", window.overlapped.decode_cpu_s / steps},
                                     {"decode_wall", window.overlapped.decode_wall_s / steps},
                                     {"copy", window.overlapped.copy_s / steps}};
  nlohmann::json json = {{"step", record.step},
                         {"epoch", record.epoch},
                         {"loss", arrived.values[kLoss]},
                         {"learning_rate", record.learning_rate},
                         {"step_s", seconds / steps},
                         {"samples_per_s", samples_per_s},
                         {"process_age_s", age_s},
                         {"run_age_s", earlier_s_ + age_s},
                         {"scale", arrived.values[kScale]},
                         {"phases_s", std::move(phases)},
                         {"overlapped_s", overlapped}};
  const float unsmoothed = arrived.values[kUnsmoothedLoss];
  const bool has_unsmoothed = shows_unsmoothed_ && !std::isnan(unsmoothed);
  if (has_unsmoothed) json["unsmoothed_loss"] = unsmoothed;
  if (tokens_per_sample_ > 0) {
    json["tokens_per_s"] = samples_per_s * static_cast<double>(tokens_per_sample_);
  }
  if (shows_gradient_norm_) json["gradient_norm"] = arrived.values[kGradientNorm];
  if (record.memory.peak_bytes > 0) json["memory"] = memory_metrics(record.memory);
  if (auto ranks = telemetry::rank_metrics(window.works); !ranks.is_null()) {
    json["ranks"] = std::move(ranks);
  }
  process_.add_to(json, now_s());
  if (device_ != nullptr) {
    device_->add_to(json);
    json["device"]["host_syncs"] = static_cast<double>(window.host_syncs) / steps;
  }
  append(json);
  if (events_ == nullptr) return;
  events_->add_scalar("train/loss", record.step, arrived.values[kLoss]);
  if (has_unsmoothed) events_->add_scalar("train/unsmoothed_loss", record.step, unsmoothed);
  events_->add_scalar("train/learning_rate", record.step, record.learning_rate);
  events_->add_scalar("speed/samples_per_s", record.step, samples_per_s);
}

void Recorder::append(const nlohmann::json& line) {
  const std::string text = metrics_.append(line);
  if (program_ != nullptr) program_->take(text);
  if (prometheus_ != nullptr) prometheus_->take(line);
}

void Recorder::count_tokens(int64_t tokens_per_sample) {
  tokens_per_sample_ = tokens_per_sample;
  state_.samples = "tokens";
}

void Recorder::sample(int64_t step, const std::string& text) {
  append({{"step", step}, {"text", text}});
  progress_.note("text: " + text);
}

void Recorder::evaluation(int64_t step, int64_t epoch, const Metrics& metrics, double seconds) {
  nlohmann::json json = {{"step", step}, {"epoch", epoch}, {"eval_s", seconds}};
  std::string line = fmt::format("epoch {}: evaluation", epoch + 1);
  for (const auto& [name, value] : metrics) {
    json["eval_" + name] = value;
    line += fmt::format("  {} {}", name, format_number(value));
    if (events_ != nullptr) events_->add_scalar("eval/" + name, step, value);
  }
  append(json);
  progress_.note(line);
}

void Recorder::gradients(const GradientHistograms::OfStep& gradients) {
  if (events_ == nullptr) return;
  for (const auto& [name, histogram] : gradients.histograms) {
    events_->add_histogram("gradients/" + name, gradients.step, histogram);
  }
}

void Recorder::memory(const telemetry::MemoryAccount& account) {
  telemetry::add_to_record(record_, "memory", to_json(account));
}

void Recorder::micro_batch(int64_t step, int64_t size) {
  micro_batches_.emplace_back(step, size);
  nlohmann::json changes = nlohmann::json::array();
  for (const auto& [first, micro] : micro_batches_) {
    changes.push_back({{"step", first}, {"micro", micro}});
  }
  telemetry::add_to_record(record_, "micro_batches", std::move(changes));
}

void Recorder::places(std::vector<std::string> by_rank) {
  places_ = std::move(by_rank);
  telemetry::add_to_record(record_, "per_rank", telemetry::rank_record(places_, {}));
}

void Recorder::samples(nlohmann::json record) {
  telemetry::add_to_record(record_, "sample_predictions", std::move(record));
}

void Recorder::works(const std::vector<telemetry::RankWork>& works) {
  telemetry::add_works(window_.works, works);
  telemetry::add_works(all_works_, works);
}

void Recorder::finish() {
  if (events_ != nullptr) telemetry::add_recipe_end(*events_, state_.step);
  flush();
  telemetry::add_to_record(record_, "forms", forms_record());
  if (!classes_.empty()) telemetry::add_to_record(record_, "classes", std::move(classes_));
  if (!all_works_.empty()) {
    telemetry::add_to_record(record_, "per_rank", telemetry::rank_record(places_, all_works_));
  }
}

void Recorder::end_watchers() {
  program_.reset();
  prometheus_.reset();
  write_age();
}

/// How long the run held its devices is more than its last step says: a rank may hang, a program of
/// telemetry.exec take its time. Past the buffer of metrics_, which another thread may be at.
void Recorder::write_age() noexcept {
  if (has_age_.exchange(true)) return;
  const double age_s = process_age_s();
  const std::string line = fmt::format("{{\"process_age_s\":{},\"run_age_s\":{},\"step\":{}}}\n",
                                       age_s, earlier_s_ + age_s, reached_step_.load());
  const Descriptor file(::open(metrics_.path().c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  [[maybe_unused]] const ssize_t written = ::write(file.get(), line.data(), line.size());
}

void Recorder::flush() {
  metrics_.flush();
  if (events_ != nullptr) events_->flush();
}

}  // namespace brim::train
