// The training step: one optimizer step over one global batch, from its samples to the weights'
// update, on one rank or in step with others. When a run evaluates, saves and stops is trainer.h's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/data/prefetcher.h"
#include "framework/device/memory.h"
#include "framework/distributed/data_parallel.h"
#include "framework/telemetry/rank_metrics.h"
#include "framework/train/balancer.h"
#include "framework/train/components.h"
#include "framework/train/device_values.h"
#include "framework/train/inputs.h"
#include "framework/train/job.h"
#include "framework/train/micro_batch.h"
#include "framework/train/observe/gradient_histograms.h"
#include "framework/train/observe/host_syncs.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/observe/module_memory.h"
#include "framework/train/observe/recorder.h"
#include "framework/train/step_graph.h"
#include "framework/train/step_start.h"

namespace brim::train {

/// What the host knows of a step that it has enqueued.
struct TakenStep {
  StepRecord record;             // of all ranks
  telemetry::RankWork own_work;  // this rank's
};

class TrainingStep {
 public:
  /// The next step is the one after `finished_steps`, which `components` are in the state of; sums
  /// of gradients begin with `buckets`, where there are some. Job and components outlive it.
  TrainingStep(const JobConfig& job, TrainingComponents& components, int64_t finished_steps,
               const distributed::BucketLayout& buckets, device::Memory& memory);

  /// From now on what only the step can see goes there: where the first one's memory went, since
  /// when ranks wait, gradients in histograms.
  void record_with(Recorder& recorder) { recorder_ = &recorder; }
  /// The first step then has no more memory than later ones, beside which a checkpoint's copy may
  /// lie. Not for a size that the tuner has found so.
  void leave_room_for_checkpoint() { leaves_checkpoint_room_ = true; }

  /// Takes the next step; never waits for the device. Where memory runs out on any rank, the step
  /// is taken again in smaller micro-batches. nullopt where a stop is asked for while any rank
  /// waits for its data: then everything is as it was before the step, on all ranks. Throws
  /// Error(kResource) with the account of memory where a single sample is too much, and
  /// Error(kData).
  std::optional<TakenStep> take();
  /// The same, but nullopt where memory runs out on any rank, which leaves weights as they were.
  std::optional<TakenStep> try_once();

  /// Sums over the evaluation data, as this rank sees them, in passes of a micro-batch, or smaller
  /// ones where memory runs out; of no use after a stop was asked for.
  at::Tensor evaluation_sums();
  /// The same, but nullopt where memory runs out on this rank.
  std::optional<at::Tensor> try_evaluation_sums();

  Timeline& timeline() { return timeline_; }
  /// StepValue by StepValue, of steps by their number. Whoever takes the steps looks at the losses:
  /// one that is not finite stops nothing here.
  DeviceValues& values() { return values_; }
  GradientHistograms& histograms() { return histograms_; }
  /// Where the memory went so far.
  MemoryAccount account() const;
  distributed::BucketLayout buckets() { return data_parallel_.layout(); }
  /// Samples that could not be read and were replaced by others.
  int64_t skipped_samples() const;

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
  /// Its learning rate.
  double update(const Gradients& gradients);
  TakenStep finish(const Gradients& gradients, double learning_rate);
  void undo();
  void make_room();
  int64_t rank_share() const;

  void start_inputs();
  std::vector<at::Tensor> defined_gradients() const;
  /// Sends the step's metrics on their way to the host, without waiting for the device.
  void push_values(const at::Tensor& loss, const at::Tensor& gradient_norm);

  const JobConfig& job_;
  TrainingComponents& components_;
  distributed::Group& group_;
  int64_t finished_steps_;
  device::Memory& memory_;
  distributed::DataParallel data_parallel_;
  std::optional<Balancer> balancer_;  // null: even shares
  Timeline timeline_;
  Recorder* recorder_ = nullptr;
  HostSyncs host_syncs_;
  DeviceValues values_;
  GradientHistograms histograms_;
  Inputs all_inputs_;
  std::unique_ptr<data::DevicePrefetcher> inputs_;  // of training
  std::vector<at::Tensor> parameters_;              // those that are trained
  MicroBatch micro_batch_;
  StepStart step_start_;
  std::optional<StepGraph> passes_;
  std::string shortage_;              // what a step that ran out of memory said
  std::vector<ModuleBytes> modules_;  // that held most in the first step
  bool knows_modules_ = false;        // of a step that went to its end
  bool leaves_checkpoint_room_ = false;
  at::Tensor checkpoint_room_;  // in the first step, for the copy that lies beside later ones
};

}  // namespace brim::train
