// The model as one rank runs it: on its device, in its precision, with the other ranks that train
// it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/distributed/fully_sharded.h"
#include "framework/distributed/group.h"
#include "framework/distributed/pipeline.h"
#include "framework/nn/model.h"
#include "framework/optim/optimizer.h"

namespace brim::train {

struct RankModel {
  std::shared_ptr<distributed::Group> group;  // of all ranks
  c10::Device device{c10::kCPU};
  amp::Precision precision;
  bool channels_last = false;         // image tensors in NHWC memory order
  bool has_sync_batch_norm = false;   // a pass waits for other ranks in its batch norms
  nn::ModelShape input;               // what the data feed the model
  std::shared_ptr<nn::Model> module;  // on the device
  std::shared_ptr<distributed::FullySharded> sharded;  // null: parameters are whole
  std::shared_ptr<distributed::Pipeline> pipeline;     // null: the module is no stage of another
  // Of the whole model, of which this rank may keep a part:
  int64_t parameters = 0, trained_parameters = 0;  // elements
  bool has_convolutions = false;
  int64_t largest_bytes = 0;             // of its parameters
  std::vector<std::string> stage_lines;  // of all stages, for people

  /// Null: every rank has the whole state, beside what the optimizer splits.
  distributed::SplitState* split() const;
  /// Whether a pass needs other ranks, which have part of the model's weights.
  bool shares_weights() const { return sharded || pipeline; }
  /// Whether the micro-batches of a step share autocast's casts of weights, and so keep them during
  /// backward. A sharded model's weights come and leave with each pass, and who recomputes blocks
  /// has no memory for it.
  bool shares_casts(bool recomputes) const { return precision.autocast && !sharded && !recomputes; }
  /// Stages of one pipeline see the same samples: which part of a step's are this rank's, of how
  /// many.
  int64_t data_rank() const { return pipeline ? pipeline->replica() : group->rank(); }
  int64_t data_world() const { return pipeline ? pipeline->replicas() : group->world(); }

  /// What this rank keeps, by name: its parameters, rows of them, or those of its stage.
  distributed::FullySharded::Named own_parameters() const;
  /// The same, and the module's buffers.
  optim::State own_tensors() const;

  /// Makes passes local from now on: batch norms see this rank's samples alone, and a sharded
  /// model's weights are not gathered. They take the same memory and compute as much, so that they
  /// can be measured, and a rank that runs out of memory leaves no other one waiting. What they
  /// return is of no use.
  void stop_waiting_within_passes();
};

}  // namespace brim::train
