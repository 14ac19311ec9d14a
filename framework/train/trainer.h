// The training loop: steps, evaluations, checkpoints and records of one run, on one rank or in step
// with others. The maths of a step is
// train_step(); the rest decides when to do what. What a checkpoint holds is state.h's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/timeline.h"
#include "framework/checkpoint/store.h"
#include "framework/data/prefetcher.h"
#include "framework/device/memory.h"
#include "framework/distributed/data_parallel.h"
#include "framework/train/balancer.h"
#include "framework/train/device_values.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/micro_batch.h"
#include "framework/train/observe/gradient_histograms.h"
#include "framework/train/observe/host_syncs.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/observe/module_memory.h"
#include "framework/train/observe/profiler.h"
#include "framework/train/observe/recorder.h"
#include "framework/train/parts.h"
#include "framework/train/run_folder.h"
#include "framework/train/save_times.h"
#include "framework/train/state.h"
#include "framework/train/step_graph.h"
#include "framework/train/step_start.h"
#include "framework/train/tasks/sample_text.h"
#include "framework/train/votes.h"

namespace brim::train {

class Trainer {
 public:
  /// Goes on from `state`, which `parts` are in. The folder exists (create_run_folder); its records
  /// are cut back to the state's step. A folder without a path: nothing is recorded.
  Trainer(const JobConfig& job, Parts parts, const TrainState& state, const RunFolder& folder,
          device::Memory& memory);

  /// A trace of these steps goes into the run's folder, a file of each rank's own. Before run().
  void profile(ProfileSteps steps);

  /// Trains to the end (kDone), or until a stop is asked for (kStopped, state saved). Throws Error:
  /// kNumeric for a loss that is not finite, kData, kCheckpoint, kResource.
  Exit run();

  /// One optimizer step over one global batch. Never waits for the device. run() is made of these.
  /// Where memory runs out on any rank, the step is taken again in smaller micro-batches. Throws
  /// Error(kResource) with the account of memory where a single sample is too much.
  void train_step();

  /// The same, but false where memory runs out on any rank, which leaves weights as they were.
  bool try_step();
  /// Where its memory went so far.
  MemoryAccount account() const;
  /// Sums over the evaluation data, as this rank sees them; undefined after a stop was asked for.
  at::Tensor evaluation_sums();

 private:
  struct Gradients {
    at::Tensor loss;  // mean over the global batch: this rank's part
    int64_t samples = 0;
    int64_t own_samples = 0;
  };
  /// Forward and backward over all micro-batches; nullopt where any rank ran out of memory.
  std::optional<Gradients> compute_gradients();
  std::optional<Gradients> accumulate();
  StepGraph::Pass forward(const data::DeviceBatch& batch, const at::Tensor& share);
  std::optional<Gradients> watch_modules();
  void update(const Gradients& gradients);
  void make_room();
  int64_t rank_share() const;

  std::vector<at::Tensor> defined_gradients() const;
  /// Sends the step's figures on their way to the host, without waiting for the device.
  void push_values(const at::Tensor& loss, const at::Tensor& gradient_norm);
  void take_arrived_values(bool wait);
  void end_step(double learning_rate, int64_t samples, int64_t own_samples);

  void start_inputs();
  void exchange_wishes();
  bool is_stopped_anywhere();
  bool evaluation_falls_due() const;
  /// False where a stop was asked for before the end; the evaluation is then still due.
  bool evaluate();
  std::optional<Metrics> evaluate_all();
  bool falls_due_to_save() const;
  void save(bool is_best);
  void report_end(bool complete);

  const JobConfig& job_;
  Parts parts_;
  distributed::Group& group_;
  RunFolder folder_;
  TrainState progress_;
  distributed::DataParallel data_parallel_;
  Votes votes_;
  std::optional<Balancer> balancer_;        // null: even shares
  Wishes wishes_;                           // what any rank asked for
  telemetry::RankWork own_work_;            // of the last step
  std::optional<checkpoint::Store> store_;  // rank 0's
  Timeline timeline_;
  std::optional<Recorder> recorder_;       // rank 0's
  std::optional<SampleText> sample_text_;  // rank 0's, where there are evaluations
  Profiler profiler_;
  HostSyncs host_syncs_;
  DeviceValues values_;
  GradientHistograms histograms_;
  Inputs all_inputs_;
  std::unique_ptr<data::DevicePrefetcher> inputs_;  // of training
  std::vector<at::Tensor> parameters_;              // those that are trained
  device::Memory& memory_;
  MicroBatch micro_batch_;
  StepStart step_start_;
  std::optional<StepGraph> passes_;
  std::string shortage_;              // what a step that ran out of memory said
  std::vector<ModuleBytes> modules_;  // that held most in the first step
  bool knows_modules_ = false;        // of a step that went to its end

  SaveTimes save_times_;
};

}  // namespace brim::train
