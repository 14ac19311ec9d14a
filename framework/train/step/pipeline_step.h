// Forward and backward of a step's micro-batches on one stage of a pipeline: the actions of
// distributed/stage_schedule.h, with what neighbours send each other. What comes after them is
// training_step.h's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/data/order/plan.h"
#include "framework/data/transfer/to_device.h"
#include "framework/distributed/pipeline.h"
#include "framework/distributed/stage_schedule.h"
#include "framework/distributed/strategy.h"
#include "framework/train/step/step_graph.h"

namespace brim::data {
class DevicePrefetcher;
}
namespace brim::nn {
class Sequence;
}

namespace brim::train {

struct RankModel;

/// Belongs to the thread that drives the step.
class PipelineStep {
 public:
  struct Losses {
    at::Tensor loss;        // this rank's part of the step's: 0 but on the last stage
    at::Tensor unsmoothed;  // the same without label smoothing; undefined: not wanted, not known
  };

  /// `recomputes`: backward passes begin with forward ones. `passes` computes the last stage's; all
  /// outlive this.
  PipelineStep(distributed::ScheduleKind schedule, bool recomputes, const RankModel& model,
               distributed::Strategy& strategy, StepGraph& passes, Timeline& timeline);

  /// Before the first step, and before those of another size of micro-batches: `work`, and all else
  /// that takes memory before the first pass. False on all ranks where it runs out on any, and
  /// `shortage` says what LibTorch said here.
  bool prepare(int64_t micro_batch_size, const std::function<void()>& work, std::string& shortage);

  /// The micro-batches are those that `inputs` gives next. Where memory runs out on this rank, or
  /// it stops for want of data, it still takes part in what the others wait for; nullopt then, on
  /// all ranks, and `shortage` says what LibTorch said here.
  std::optional<Losses> run(data::DevicePrefetcher& inputs,
                            const std::vector<data::BatchPlan>& micro_batches,
                            bool wants_unsmoothed, std::string& shortage);

  /// Seconds of this rank's own work since the last call, as the host saw it.
  double take_compute_s() { return std::exchange(compute_s_, 0); }

 private:
  /// A micro-batch between its forward and its backward pass.
  struct Flight {
    at::Tensor model_inputs;
    at::Tensor inputs;     // of this stage, with a gradient where an earlier one learns
    at::Tensor outputs;    // of this stage; undefined on the last
    StepGraph::Pass pass;  // of the last stage
  };
  /// Of one direction, in the order of the micro-batches.
  struct Messages {
    std::deque<std::pair<at::Tensor, distributed::Pending>> under_way;
    size_t begun = 0;
  };

  /// `next`: the action after it; null: it is the last.
  void take(const distributed::StageAction& action, const distributed::StageAction* next,
            data::DevicePrefetcher& inputs);
  void forward(size_t micro_batch, data::DevicePrefetcher& inputs);
  void backward(size_t micro_batch);
  /// What the others wait for of an action, without its values.
  void take_part(const distributed::StageAction& action);

  /// Begins to receive up to that micro-batch's activations, or gradients.
  void start_receiving(bool gradients, size_t micro_batch);
  /// The same of a message that comes after the next action's, on a CPU. On a GPU a message that is
  /// waited for occupies the device, and what the host asks of it may wait until it is idle, such
  /// as a kernel's first launch or a search for algorithms: the message must then depend on nothing
  /// that this rank has yet to send.
  void receive_ahead(bool gradients, size_t micro_batch);
  at::Tensor receive(bool gradients, size_t micro_batch);
  /// `message` as MessageShape makes them.
  void send(bool gradients, const at::Tensor& message);
  /// Memory for one: of its own, or the spare one where there is no other.
  at::Tensor memory_for(bool gradients, bool is_sender, size_t micro_batch) const;
  static void finish_sends(Messages& out, size_t count);
  bool has_messages(bool gradients, bool is_sender) const;
  const distributed::MessageShape& shape(bool gradients, bool is_sender) const;

  distributed::ScheduleKind schedule_;
  bool recomputes_;
  std::optional<amp::WeightCasts> casts_;  // from a step's first forward pass to its last one
  const RankModel& model_;
  distributed::Pipeline& pipeline_;
  int64_t first_learning_;
  nn::Sequence& sequence_;
  distributed::Strategy& strategy_;
  StepGraph& passes_;
  Timeline& timeline_;
  distributed::MessageRoom room_;
  std::optional<c10::Stream> arrivals_;  // on which messages are received; none on the CPU

  // Of the step under way.
  const std::vector<data::BatchPlan>* micro_batches_ = nullptr;
  bool wants_unsmoothed_ = false;
  bool has_summed_ = false;  // with the replicas
  bool is_short_ = false;    // of memory, or of data: nothing is computed any more
  Losses losses_;
  std::map<size_t, Flight> flights_;
  Messages activations_in_, gradients_in_, activations_out_, gradients_out_;
  double waited_s_ = 0;
  double compute_s_ = 0;
};

}  // namespace brim::train
