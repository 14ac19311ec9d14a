// The ranks of a pipeline: each computes one stage of a model, and keeps that stage's parameters,
// their gradients and their optimizer's state. Several pipelines side by side are replicas that see
// different samples. Ranks of one are neighbours: rank = replica * stages + stage.
//
// Neighbours send each other activations and their gradients, each way over a communicator of its
// own: sends of one direction then never wait for those of the other. A stage between two others
// has its communicators in the order of their parity, so that all can be made at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/distributed/group.h"
#include "framework/distributed/split_state.h"
#include "framework/distributed/strategy.h"

namespace brim::distributed {

/// What travels between two stages, all but how many samples.
struct MessageShape {
  std::vector<int64_t> sizes;  // of a sample
  at::ScalarType type = at::kFloat;
  bool is_channels_last = false;

  /// [samples, sizes…], of no values.
  at::Tensor empty(int64_t samples, c10::Device device) const;
  /// `tensor` as it travels: itself where it has type and layout already.
  at::Tensor pack(const at::Tensor& tensor) const;
};

/// Of one stage.
struct StageLayout {
  std::set<std::string> tensors;        // names of its parameters and buffers
  std::optional<MessageShape> outputs;  // that the next stage gets; nullopt: it is the last
};

/// Memory for a message from or to each neighbour: a stage that has none left still takes part in
/// what the others wait for. The values are of no use.
struct MessageRoom {
  at::Tensor before, after;  // as MessageShape makes them; undefined where there is no such stage
};

class Pipeline final : public SplitState {
 public:
  /// `layouts`, by stage, are the same on all ranks; `parameters` are this rank's. Waits for no
  /// other rank. Throws Error(kRecipe) where three stages share a parameter.
  Pipeline(std::shared_ptr<Group> group, std::vector<StageLayout> layouts,
           const std::vector<std::pair<std::string, at::Tensor>>& parameters);

  int64_t stages() const { return static_cast<int64_t>(layouts_.size()); }
  int64_t stage() const { return group_->rank() % stages(); }
  int64_t replicas() const { return group_->world() / stages(); }
  int64_t replica() const { return group_->rank() / stages(); }
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() + 1 == stages(); }

  /// Meets the ranks of its parts, whose messages are on that device. Every rank calls it, once,
  /// before anything below.
  void connect(c10::Device device);
  /// The ranks of this pipeline, by stage, and those that have the same stage, by replica.
  Group& line() { return *line_; }
  const std::shared_ptr<Group>& same_stage() { return same_stage_; }

  /// What the stage before sends and the stage after gets; gradients have the same shapes.
  const MessageShape& inputs() const { return *layouts_[static_cast<size_t>(stage() - 1)].outputs; }
  const MessageShape& outputs() const { return *layouts_[static_cast<size_t>(stage())].outputs; }
  /// For messages of up to so many samples.
  MessageRoom room_for_messages(int64_t samples, c10::Device device) const;
  /// Tensors as MessageShape makes them. One without samples does not travel.
  Pending send_activations(const at::Tensor& tensor);     // to the next stage
  Pending receive_activations(const at::Tensor& tensor);  // from the stage before
  Pending send_gradients(const at::Tensor& tensor);       // to the stage before
  Pending receive_gradients(const at::Tensor& tensor);    // from the next stage

  /// Adds up the gradients of parameters that two stages share, on both.
  void add_up_shared();
  /// Whether an earlier stage has the parameter too, so that it counts there.
  bool counts_elsewhere(const at::Tensor& parameter) const;
  /// The sum over the stages, a scalar of any type on any device.
  void add_up(at::Tensor& value);

  /// Sums of gradients begin with the buckets of the run's last part (BucketLayout). Those of all
  /// stages, each name after its stage's number, and this stage's of such.
  BucketLayout gather_buckets(const BucketLayout& own);
  BucketLayout own_buckets(const BucketLayout& all) const;

  void gather(const optim::State& own, optim::StateWriter* into) override;
  optim::State local_shard(const optim::State& whole, const optim::State& own) const override;

 private:
  /// Parameters of this stage that another one has, too.
  struct Shared {
    int64_t first = 0, second = 0;  // stages
    at::Tensor parameter;
    std::shared_ptr<Group> group;  // of both, in this pipeline
  };
  /// Of activations and of gradients between two neighbours.
  struct Link {
    std::shared_ptr<Group> activations, gradients;
  };
  Link connect_pair(int64_t first_stage, c10::Device device);
  /// The stages that have a tensor, or state of it, by name; empty for what is of no tensor, which
  /// stage 0 gives.
  std::vector<int64_t> holders(const std::string& name) const;
  void send_state(const optim::State& own);
  void receive_state(int64_t stage, const optim::State& layout, optim::StateWriter& into);

  std::shared_ptr<Group> group_;
  std::vector<StageLayout> layouts_;
  std::vector<Shared> shared_;
  std::shared_ptr<Group> line_, same_stage_;
  Link before_, after_;
};

}  // namespace brim::distributed
