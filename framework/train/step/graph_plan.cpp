#include "framework/train/step/graph_plan.h"

namespace brim::train {

GraphPlan::Choice GraphPlan::next(const PassShape& shape, bool is_first) {
  if (is_first) gradients_of_.reset();
  if (!is_first && !gradients_of_) return {};
  const std::optional<size_t> place = find(shape, gradients_of_);
  if (!place) return {};
  Kind& kind = kinds_[*place];
  if (kind.passes < kWarmUps) {
    ++kind.passes;
    return {};
  }
  if (is_first) gradients_of_ = place;
  return {kind.is_recorded ? Mode::kReplay : Mode::kRecord, *place};
}

std::optional<size_t> GraphPlan::find(const PassShape& shape, std::optional<size_t> adds_to) {
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].shape == shape && kinds_[i].adds_to == adds_to) return i;
  }
  if (kinds_.size() == kMaxGraphs) return std::nullopt;
  kinds_.push_back({.shape = shape, .adds_to = adds_to});
  return kinds_.size() - 1;
}

void GraphPlan::release() {
  for (Kind& kind : kinds_) kind.is_recorded = false;
  gradients_of_.reset();
}

void GraphPlan::reset() {
  kinds_.clear();
  gradients_of_.reset();
}

}  // namespace brim::train
