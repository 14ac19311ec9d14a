// What a run tells the world: metrics.jsonl and who else gets its lines, the TensorBoard event file
// and the progress line, fed once a step. Losses arrive later than their steps; a line is written
// when both are there.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/telemetry/device_metrics.h"
#include "framework/telemetry/metrics_file.h"
#include "framework/telemetry/metrics_program.h"
#include "framework/telemetry/process_metrics.h"
#include "framework/telemetry/progress.h"
#include "framework/telemetry/prometheus/prometheus.h"
#include "framework/telemetry/rank_metrics.h"
#include "framework/telemetry/tensorboard/event_file.h"
#include "framework/train/job.h"
#include "framework/train/observe/device_phases.h"
#include "framework/train/observe/gradient_histograms.h"
#include "framework/train/observe/observer.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/step/device_values.h"
#include "framework/train/tasks/task.h"

namespace brim::train {

class Recorder final : public StepObserver {
 public:
  /// Cuts the files of an earlier part of this run back to `finished_steps`.
  /// On a GPU the phases of steps are those of its stream, from the timeline's on.
  Recorder(const JobConfig& job, const RunFolder& folder, c10::Device device, Timeline& timeline,
           int64_t finished_steps, int64_t total_steps, int64_t steps_per_epoch);
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// From now on speed is told in tokens too, of which every sample has so many.
  void count_tokens(int64_t tokens_per_sample);
  /// What a language model wrote after an evaluation.
  void sample(int64_t step, const std::string& text);

  /// Of each step, when the host is through with it.
  void step(const StepRecord& record);
  void gradients(const GradientHistograms::OfStep& gradients);
  void values(const ArrivedValues& arrived);
  void evaluation(int64_t step, int64_t epoch, const Metrics& metrics, double seconds);
  /// The newest evaluation by class; finish() writes it to run.json.
  void classes(nlohmann::json record) { classes_ = std::move(record); }
  /// For run.json, as write() of sample_predictions.h gives it.
  void samples(nlohmann::json record);
  void waits_since(const std::shared_ptr<const device::StreamEvent>& moment) override;
  /// For run.json, as micro_batch().
  void memory(const telemetry::MemoryAccount& account) override;
  void micro_batch(int64_t step, int64_t size) override;
  /// Of two ranks or more: where they run, "cuda:1 on gpu03".
  void places(std::vector<std::string> by_rank);
  /// What each rank did of a step, by rank, one or two steps later; empty for a single rank.
  void works(const std::vector<telemetry::RankWork>& works);
  /// Puts everything on disk that was recorded so far.
  void flush();
  /// flush(), and the sums over the run to run.json. Only the run's age follows, as its last line.
  void finish();
  /// Waits for the program of telemetry.exec, as its destructor says, takes back what Prometheus
  /// was shown, and writes the run's age.
  void end_watchers();

  /// Steps that were left out because their gradients were not finite.
  int64_t skipped_steps() const { return skipped_steps_; }

 private:
  /// The steps since the last written line.
  struct Window {
    int64_t steps = 0;
    int64_t samples = 0;
    std::array<double, kPhaseCount> phase_s{};
    OverlappedWork overlapped;
    int64_t host_syncs = 0;
    std::vector<telemetry::RankWork> works;  // by rank; empty: alone
  };
  struct PendingLine {
    StepRecord record;
    Window window;
    double process_age_s;
  };
  void count(const StepRecord& record);
  void count_passed_steps(int64_t wait_for);
  void write_line(const PendingLine& line, const ArrivedValues& arrived);
  void append(const nlohmann::json& line);
  void write_age() noexcept;

  const TelemetryConfig& rules_;
  const int64_t last_step_;
  const bool shows_gradient_norm_;
  const bool shows_unsmoothed_;         // the loss without label smoothing
  double earlier_s_ = 0;                // the run's age when this process began
  const std::filesystem::path record_;  // run.json
  telemetry::MetricsFile metrics_;
  telemetry::ProcessMetrics process_;
  std::unique_ptr<telemetry::DeviceMetrics> device_;    // null: the CPU
  std::unique_ptr<DevicePhases> phases_;                // null: the CPU
  std::deque<StepRecord> enqueued_;                     // steps that a GPU may not be through with
  std::unique_ptr<telemetry::EventFile> events_;        // null: not asked for
  std::unique_ptr<telemetry::Prometheus> prometheus_;   // null: not asked for
  std::unique_ptr<telemetry::MetricsProgram> program_;  // null: not asked for
  telemetry::Progress progress_;
  telemetry::ProgressState state_;
  std::deque<telemetry::ProgressState> unshown_;  // of steps whose loss is on its way
  Window window_;
  std::deque<PendingLine> pending_;
  std::vector<std::string> places_;  // by rank
  std::vector<telemetry::RankWork> all_works_;
  nlohmann::json classes_ = nlohmann::json::array();
  std::vector<std::pair<int64_t, int64_t>> micro_batches_;  // step and size, where it changed
  std::atomic<int64_t> reached_step_;  // for the thread that ends a process that hangs
  std::atomic<bool> has_age_;          // the last line was written, or the run had ended before
  int64_t skipped_steps_ = 0;
  int64_t tokens_per_sample_ = 0;  // 0: samples are no tokens
};

}  // namespace brim::train
