// The training step: one optimizer step over one global batch, from its samples to the weights'
// update, on one rank or in step with others. When a run evaluates, saves and stops is trainer.h's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/data/order/replacement_log.h"
#include "framework/distributed/strategy.h"
#include "framework/telemetry/memory_account.h"
#include "framework/telemetry/rank_metrics.h"
#include "framework/train/observe/gradient_histograms.h"
#include "framework/train/observe/host_syncs.h"
#include "framework/train/observe/observer.h"
#include "framework/train/step/device_values.h"
#include "framework/train/step/micro_batch.h"
#include "framework/train/step/step_graph.h"
#include "framework/train/step/step_start.h"

namespace brim::data {
class DevicePrefetcher;
}
namespace brim::device {
class Memory;
}

namespace brim::train {

class Balancer;
class Evaluator;
class Inputs;
class PipelineStep;
class SamplePredictions;
struct JobConfig;
struct TrainingComponents;

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
  ~TrainingStep();

  /// From now on `observer` is told, and gradients are counted in histograms.
  void observe(StepObserver& observer) { observer_ = &observer; }
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
  /// `samples`, where given, is told of each sample.
  at::Tensor evaluation_sums(SamplePredictions* samples = nullptr);
  /// The same, but nullopt where memory runs out on this rank.
  std::optional<at::Tensor> try_evaluation_sums();

  Timeline& timeline() { return timeline_; }
  /// StepValue by StepValue, of steps by their number. Whoever takes the steps looks at the losses:
  /// one that is not finite stops nothing here.
  DeviceValues& values() { return values_; }
  GradientHistograms& histograms() { return histograms_; }
  /// Where the memory went so far.
  telemetry::MemoryAccount account() const;
  distributed::BucketLayout buckets();
  /// Samples that could not be read and were replaced by others.
  int64_t skipped_samples() const;
  /// Evaluation samples of this rank that could not be read.
  int64_t left_out_samples() const;
  /// Of the finished steps, those that this rank has replaced since the last call.
  std::vector<data::Replacement> take_replacements();

 private:
  struct Gradients {
    at::Tensor loss;        // mean over the global batch: this rank's part
    at::Tensor unsmoothed;  // the same without label smoothing; undefined: not wanted, not known
    int64_t samples = 0;
    int64_t own_samples = 0;
  };
  /// Forward and backward over all micro-batches; nullopt where another rank gave the step up.
  std::optional<Gradients> accumulate();
  /// The same on a stage of a pipeline, after `prepare` where the step before left nothing ready.
  std::optional<Gradients> accumulate_in_stages(const std::function<void()>& prepare);
  /// accumulate(), but nullopt also where this rank runs out of memory or stops for want of data.
  std::optional<Gradients> try_accumulate();
  /// Takes the optimizer's step. Returns its learning rate.
  double update(const Gradients& gradients);
  TakenStep finish(const Gradients& gradients, double learning_rate);
  void undo();
  [[noreturn]] void refuse_to_shrink(int64_t size, std::string_view note) const;
  int64_t make_room();
  int64_t rank_share() const;
  at::Tensor clip();

  void start_inputs();
  std::vector<at::Tensor> defined_gradients() const;
  /// Sends the step's metrics on their way to the host, without waiting for the device.
  void push_values(const Gradients& step, const at::Tensor& gradient_norm);
  /// Whether the next step's metrics have the loss without label smoothing.
  bool wants_unsmoothed() const;

  const JobConfig& job_;
  TrainingComponents& components_;
  distributed::Group& group_;
  int64_t finished_steps_;
  device::Memory& memory_;
  std::shared_ptr<distributed::Strategy> strategy_;
  std::unique_ptr<Balancer> balancer_;  // null: even shares
  Timeline timeline_;
  StepObserver* observer_ = nullptr;  // null: no one looks
  HostSyncs host_syncs_;
  DeviceValues values_;
  GradientHistograms histograms_;
  std::unique_ptr<Inputs> all_inputs_;
  std::unique_ptr<data::DevicePrefetcher> inputs_;  // of training
  std::unique_ptr<Evaluator> evaluator_;
  std::vector<at::Tensor> parameters_;  // those that are trained, or rows of them
  MicroBatch micro_batch_;
  StepStart step_start_;
  StepGraph passes_;
  std::unique_ptr<PipelineStep> stages_;         // null: no pipeline
  std::string shortage_;                         // what a step that ran out of memory said
  std::vector<telemetry::ModuleBytes> modules_;  // that held most in the first step
  bool knows_modules_ = false;                   // of a step that went to its end
  bool leaves_checkpoint_room_ = false;
  at::Tensor checkpoint_room_;  // in the first step, for the copy that lies beside later ones
};

}  // namespace brim::train
