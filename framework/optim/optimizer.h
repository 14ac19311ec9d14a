// Optimizers as the training step uses them, and the config struct that builds one.
// The step takes the gradient scaler's tensors, so that unscaling and skipping happen inside the
// fused kernels, without the host waiting for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/recipe/registry.h"

namespace brim::optim {

/// Parameters that share a weight decay and a learning rate. Names are the model's, for
/// checkpoints.
struct ParameterGroup {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  double weight_decay = 0.0;
  double rate_scale = 1.0;  // times the step's learning rate
};

/// The scaler's side of a step: gradients are multiplied by 1/grad_scale (where given) and the step
/// is skipped as a whole where found_inf is 1. Both float32 scalars on the parameters' device.
struct StepScale {
  std::optional<at::Tensor> grad_scale;
  std::optional<at::Tensor> found_inf;
};

/// Named state tensors; each refers to the live state.
using State = std::map<std::string, at::Tensor>;

/// Takes the state of all ranks as gather_state() passes it.
class StateWriter {
 public:
  virtual ~StateWriter() = default;
  /// Names, dtypes and shapes of all that follows; the tensors have no values.
  virtual void begin(const State& layout) = 0;
  /// Rows of dimension 0, or a scalar. On the CPU, contiguous.
  virtual void write(const std::string& name, int64_t first_row, const at::Tensor& rows) = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update from the parameters' gradients; parameters without a gradient are left alone.
  virtual void step(double learning_rate, const StepScale& scale = {}) = 0;
  /// Waits until every parameter holds what step() made of it; call before they are read again.
  virtual void finish_step() {}
  /// Lets a forward pass begin before that: blocks (nn/block.h) wait for the parameters they read.
  virtual void begin_forward() {}
  /// Seconds that the host has waited for parameters since begin_forward().
  virtual double waited_s() const { return 0; }
  /// Sets every gradient to undefined.
  virtual void zero_grad();

  /// "momentum.<parameter>" and so on; complete from construction on, so that saving, loading and
  /// memory accounting never depend on whether a step was taken.
  virtual State state() = 0;
  /// Whether state() is this rank's shard only. gather_state() then passes the whole to rank 0's
  /// `into`, a few rows at a time, so that no rank needs room for more than its shard; every rank
  /// takes part, the others with null.
  virtual bool is_sharded() const { return false; }
  virtual void gather_state(StateWriter* into);
  /// What state() would hold of a whole state; names that fit nothing stay in it.
  virtual State local_shard(const State& whole) { return whole; }

  const std::vector<ParameterGroup>& groups() const { return groups_; }

 protected:
  explicit Optimizer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  std::vector<ParameterGroup> groups_;
};

/// Base of every optimizer's config struct. The keys that all share (learning_rate, weight_decay)
/// are the [optimizer] section's own; see train/job.h.
class OptimizerConfig : public recipe::Config {
 public:
  /// The parameters must be on their device and in their memory order already: the state takes both
  /// from them.
  virtual std::unique_ptr<Optimizer> build(std::vector<ParameterGroup> groups) const = 0;
  /// True where an element's update depends on no other element of its parameter, so that parts of
  /// one can be updated apart.
  virtual bool is_element_wise() const { return true; }
};

/// Registers sgd, adam, adamw, lamb, lars; call once at program start.
void register_optimizers();

}  // namespace brim::optim
