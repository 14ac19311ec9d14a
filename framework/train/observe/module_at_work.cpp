#include "framework/train/observe/module_at_work.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>

namespace brim::train {

ModuleAtWork::ModuleAtWork(const torch::nn::Module& model)
    : modules_(model), loss_(modules_.names().size()) {}

void ModuleAtWork::begins(Phase phase) {
  phase_ = phase;
  if (phase != Phase::kForward) return;
  module_ = 0;
  first_node_ = at::sequence_number::peek();
  node_modules_.clear();
}

void ModuleAtWork::reads(const at::Tensor& tensor) {
  if (!is_in_pass()) return;
  if (const auto module = modules_.module_of(tensor)) module_ = *module;
}

void ModuleAtWork::takes_targets() {
  if (phase_ == Phase::kForward) module_ = loss_;
}

void ModuleAtWork::enter_node(int64_t sequence) {
  const int64_t index = sequence - static_cast<int64_t>(first_node_);
  if (index < 0 || index >= static_cast<int64_t>(node_modules_.size())) return;
  module_ = node_modules_[static_cast<size_t>(index)];
}

void ModuleAtWork::assign_nodes() {
  // Backward, what is recomputed makes nodes too.
  const bool makes_nodes =
      phase_ == Phase::kForward || (phase_ == Phase::kBackward && at::GradMode::is_enabled());
  if (!makes_nodes) return;
  const uint64_t next = at::sequence_number::peek();
  if (next > first_node_) node_modules_.resize(next - first_node_, module_);
}

std::string ModuleAtWork::name_of(size_t number, Phase phase) const {
  if (!is_pass(phase)) return "";
  return number == loss_ ? "loss" : modules_.names()[number];
}

}  // namespace brim::train
