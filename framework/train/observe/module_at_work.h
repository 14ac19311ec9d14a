// Which module of a model a training step is in, operator after operator, forward and backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/timeline.h"
#include "framework/train/observe/parameter_modules.h"

namespace brim::train {

/// Follows what the thread that drives the step is told of; not thread-safe.
class ModuleAtWork {
 public:
  explicit ModuleAtWork(const torch::nn::Module& model);

  void begins(Phase phase);
  /// An operator is given this tensor: where it is a parameter, its module is at work.
  void reads(const at::Tensor& tensor);
  /// An operator is given what the model is to say: forward, the loss is at work from here on.
  void takes_targets();
  /// A node of the backward pass begins, by autograd's sequence number: the module of the forward
  /// operator that made it is at work.
  void enter_node(int64_t sequence);
  /// Nodes that were made since the last call belong to the module that is at work.
  void assign_nodes();

  Phase phase() const { return phase_; }
  /// 0 outside forward and backward.
  size_t number() const { return is_in_pass() ? module_ : 0; }
  /// "layer1.0.conv1", "loss", "input"; "" outside forward and backward.
  std::string name_of(size_t number, Phase phase) const;

 private:
  bool is_in_pass() const { return is_pass(phase_); }
  static bool is_pass(Phase phase) { return phase == Phase::kForward || phase == Phase::kBackward; }

  const ParameterModules modules_;
  const size_t loss_;  // the number of what follows the model
  Phase phase_ = Phase::kOther;
  size_t module_ = 0;
  uint64_t first_node_ = 0;           // of this pass, by its sequence number
  std::vector<size_t> node_modules_;  // by sequence number, from it on
};

}  // namespace brim::train
