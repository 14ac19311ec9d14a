// What is learned: a task turns model outputs into a loss to train on and figures to report.
// The trainer knows tasks only through this interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/to_device.h"
#include "framework/nn/model.h"

namespace brim::train {

/// Figures of one evaluation in the order in which they are shown; the first is the loss.
using Metrics = std::vector<std::pair<std::string, double>>;

class Task {
 public:
  virtual ~Task() = default;

  /// Mean loss over the batch: a scalar with a gradient. Of an empty batch, which a rank gets when
  /// a step is too short for all, it is zero, and so are its gradients.
  virtual at::Tensor loss(nn::Model& model, const data::DeviceBatch& batch) const = 0;

  /// Sums over one evaluation batch, float64 [K] on the device; sums of batches add up.
  virtual at::Tensor evaluation_sums(nn::Model& model, const data::DeviceBatch& batch) const = 0;

  /// Figures from the summed evaluation_sums, on the CPU.
  virtual Metrics metrics(const at::Tensor& sums) const = 0;

  /// The accuracy, in percent, that decides which checkpoint is best.
  virtual std::string best_by() const = 0;
};

}  // namespace brim::train
