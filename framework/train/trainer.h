// One run, on one rank or in step with others: when it takes a step, evaluates, saves and stops,
// and what it records. The step itself is training_step.h's, what a checkpoint holds state.h's.
#pragma once

#include <optional>

#include "framework/base/error.h"
#include "framework/checkpoint/store.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/components.h"
#include "framework/train/control_all_reduce.h"
#include "framework/train/inference/sample_text.h"
#include "framework/train/job.h"
#include "framework/train/observe/profiler.h"
#include "framework/train/observe/recorder.h"
#include "framework/train/observe/sample_predictions.h"
#include "framework/train/run/run_folder.h"
#include "framework/train/run/save_times.h"
#include "framework/train/run/state.h"
#include "framework/train/step/training_step.h"

namespace brim::train {

class Trainer {
 public:
  /// Resumes from `state`, which `components` are in. The folder exists (create_run_folder); its
  /// records are cut back to the state's step.
  Trainer(const JobConfig& job, TrainingComponents components, const TrainState& state,
          const RunFolder& folder, device::Memory& memory);

  /// As TrainingStep's, before run().
  void leave_room_for_checkpoint() { step_.leave_room_for_checkpoint(); }

  /// A trace of these steps goes into the run's folder, a file of each rank's own. Before run().
  void profile(ProfileSteps steps);

  /// Trains to the end (kDone), or until a stop is asked for (kStopped, state saved). Throws Error:
  /// kNumeric for a loss that is not finite, kData, kCheckpoint, kResource.
  Exit run();

 private:
  distributed::Group& ranks_with_same_buffers();
  void take_arrived_values(bool wait);
  void exchange_requests(const telemetry::RankWork& own_work);
  bool is_stopped_anywhere();
  bool evaluation_falls_due() const;
  void add_resume_hint(const Error& error) const;
  void keep_steps();
  /// False where a stop was asked for before the end; the evaluation is then still due.
  bool evaluate();
  std::optional<Metrics> evaluate_all();
  bool falls_due_to_save() const;
  void save(bool is_best);
  void begin_history();
  void collect_replacements();
  void tell_of_checkpoint(bool wait);
  int64_t rank_of_samples() const;
  void report_samples();
  std::vector<int64_t> stage_peaks(int64_t own);
  void report_end(bool complete);

  const JobConfig& job_;
  TrainingComponents components_;
  distributed::Group& group_;
  RunFolder folder_;
  TrainState progress_;
  ControlAllReduce control_;
  ControlRequests requests_;  // what any rank asked for
  device::Memory& memory_;
  TrainingStep step_;
  std::optional<checkpoint::Store> store_;    // rank 0's
  std::optional<int64_t> writing_;            // the step of the checkpoint that it writes
  std::optional<Recorder> recorder_;          // rank 0's
  std::optional<SampleText> sample_text_;     // where there are evaluations
  std::optional<SamplePredictions> samples_;  // of the last evaluation: rank_of_samples()'s
  Profiler profiler_;
  SaveTimes save_times_;
};

}  // namespace brim::train
