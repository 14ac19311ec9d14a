// Forward and backward of a micro-batch, recorded once and then launched as a whole
// (train.cuda_graph): the host is spared the launches of hundreds of kernels, which is what bounds
// small batches. Where there is no recorder, passes are simply run.
//
// What is recorded is one micro-batch's pass, in two recordings, so that the timeline still tells
// forward from backward. The rest of a step stays outside: clipping, the optimizer and the moving
// average are a few launches of fused kernels whose learning rate the host chooses again each step,
// the loader's copies run on a stream of their own, and how many micro-batches a step has may
// change. The gradient scaler's scale is a tensor on the device, which the recorded pass reads.
//
// Recorded work keeps its memory while other work runs, an evaluation for instance; who needs that
// memory calls release(). The batch tuner's probes are run, not recorded: recordings take the
// inputs' copy more, and what their own pool leaves unused.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/device/graph_recorder.h"
#include "framework/train/step/graph_plan.h"

namespace brim::amp {
class GradScaler;
}
namespace brim::data {
struct DeviceBatch;
}

namespace brim::train {

class Task;
struct RankModel;

/// Not thread-safe.
class StepGraph {
 public:
  struct Pass {
    at::Tensor loss;        // this pass's part of the step's, without a gradient
    at::Tensor unsmoothed;  // the same without label smoothing; undefined: not wanted, or not known
    at::Tensor scaled;      // what backward begins from; undefined where the pass is replayed
  };

  /// Passes of what outlives it. No recorder: every pass is run.
  StepGraph(const RankModel& model, const Task& task, amp::GradScaler& scaler,
            std::unique_ptr<device::GraphRecorder> recorder);
  ~StepGraph();

  /// A pass over one micro-batch, which counts as `share` of its step. `is_first` of its step: the
  /// parameters have no gradients yet. A pass that can't be recorded is run instead, as are all
  /// after it, and a warning says why. Recorded passes have the unsmoothed loss, wanted or not.
  Pass forward(const data::DeviceBatch& batch, double share, bool is_first,
               bool wants_unsmoothed = false);
  /// Adds the gradients of the last forward(), whose result `pass` is, to the parameters'.
  void backward(const Pass& pass);

  bool is_recorded() const { return recorder_ != nullptr; }

  /// Gives back what recordings hold; they are made again. Between two steps.
  void release();
  /// The same, for good: from now on batches have other sizes.
  void reset();

 private:
  struct Graph;  // a kind of pass, recorded
  void check(const at::Tensor& loss) const;
  Pass compute(const data::DeviceBatch& batch, const at::Tensor& share, bool wants_unsmoothed);
  Pass run(const data::DeviceBatch& batch, double share, bool wants_unsmoothed);
  bool record(const data::DeviceBatch& batch, Graph& graph);
  Pass replay(const data::DeviceBatch& batch, double share, Graph& graph);
  void give_up(const std::string& reason);

  const RankModel& model_;
  const Task& task_;
  amp::GradScaler& scaler_;
  std::unique_ptr<device::GraphRecorder> recorder_;  // null: none, or given up
  std::vector<at::Tensor> parameters_;               // those that get gradients
  GraphPlan plan_;
  at::Tensor share_;  // that recordings read
  std::vector<Graph> graphs_;
  Graph* replayed_ = nullptr;  // whose forward() was the last one
  bool is_checked_ = false;    // what the task makes of the model
};

}  // namespace brim::train
