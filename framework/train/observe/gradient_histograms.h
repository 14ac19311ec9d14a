// Histograms of gradients for TensorBoard: counted on the device, so that the step never waits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/telemetry/tensorboard/histogram.h"
#include "framework/train/step/device_values.h"

namespace brim::nn {
class Model;
}

namespace brim::train {

/// Belongs to the thread that drives the step; the model outlives it.
class GradientHistograms {
 public:
  GradientHistograms(const nn::Model& model, int64_t every_steps)
      : model_(model), every_steps_(every_steps) {}

  bool falls_due(int64_t step) const { return every_steps_ > 0 && step % every_steps_ == 0; }
  /// Counts the gradients as they are, divided by `scale` (a float32 scalar) where there is one.
  void count(int64_t step, const std::optional<at::Tensor>& scale);

  struct OfStep {
    int64_t step;
    std::vector<std::pair<std::string, telemetry::Histogram>> histograms;  // by parameter
  };
  /// The oldest that has arrived, or, with `wait`, that is under way. Values that are not finite
  /// are left out; a parameter without finite ones has no histogram.
  std::optional<OfStep> pop(bool wait);

 private:
  const nn::Model& model_;
  int64_t every_steps_;  // 0: never
  at::Tensor limits_;    // float32 [buckets - 1], on the device
  DeviceValues values_;
};

}  // namespace brim::train
