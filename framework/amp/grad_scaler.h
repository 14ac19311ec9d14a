// Loss scaling for fp16 (Micikevicius et al., "Mixed Precision Training", ICLR 2018), with the
// semantics of torch.amp.GradScaler and LibTorch's own kernels. The order of calls in a step:
//   1. scale(loss), for each micro-batch, then backward
//   2. unscale(gradients) where they are clipped or looked at, else check(gradients)
//   3. the optimizer's step, given grad_scale() and found_inf()
//   4. update()
// With optimizers of LibTorch's, step(optimizer) is 2 and 3 for each of them. Nothing here waits
// for the device, except where it says so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>

#include "framework/recipe/fields.h"

namespace torch::optim {
class Optimizer;
}

namespace brim::amp {

struct GradScalerConfig {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 1.0;

  void fields(recipe::Fields& f);
  bool operator==(const GradScalerConfig&) const = default;
};

/// Sets found_inf, a float32 scalar, to 1 where a gradient holds an infinity or NaN, and multiplies
/// every gradient by inverse_scale, a float32 scalar. Any dtypes, one device. Throws Error(kRecipe)
/// for a sparse gradient.
void check_and_unscale(at::TensorList gradients, at::Tensor& found_inf,
                       const at::Tensor& inverse_scale);

/// Not thread-safe.
class GradScaler {
 public:
  /// A disabled scaler passes everything through. Throws Error(kRecipe) where the initial scale is
  /// under the minimum.
  GradScaler(c10::Device device, const GradScalerConfig& config, bool enabled);

  bool enabled() const { return enabled_; }

  /// The loss times the scale.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients by the scale, in place, and looks for infinities and NaN. Once a step
  /// for each gradient; there may be several lists.
  void unscale(at::TensorList gradients);
  /// Looks for infinities and NaN only; the optimizer is left to divide. Once a step, in
  /// unscale()'s place: it spares a rounding and is what the fused kernels are made for.
  void check(at::TensorList gradients);

  /// What the loss is multiplied by, a float32 scalar; nullopt when disabled. The live tensor.
  std::optional<at::Tensor> scale_of_loss() const;
  /// What the optimizer must still divide by; nullopt after unscale() or when disabled.
  std::optional<at::Tensor> grad_scale() const;
  /// Float32 scalar, 1 where the step must be skipped; nullopt when disabled. It is the live
  /// tensor: the next step's check or unscale overwrites it.
  std::optional<at::Tensor> found_inf() const;

  /// Unscales those of the optimizer's gradients that unscale() was not given, and calls its step()
  /// where all of them are finite, which waits for the device. Returns whether it was called. Once
  /// a step for each optimizer. An optimizer that unscale() was given gradients of is left out,
  /// too, where any gradient before it was not finite. Throws Error(kBug) where none of its
  /// parameters has a gradient, as torch asserts.
  bool step(torch::optim::Optimizer& optimizer);

  /// Ends the step: the scale backs off after a skipped one (never under the minimum) and grows
  /// after growth_interval good ones in a row.
  void update();

  /// The live state, for checkpoints: "grad_scaler.scale" (float32) and
  /// "grad_scaler.growth_tracker" (int32), both scalars; empty when disabled.
  std::map<std::string, at::Tensor> state();

  /// The scale, for people; waits for the device. 1 when disabled.
  double read_scale() const;

 private:
  enum class Stage { kReady, kChecked, kUnscaled };
  at::Tensor inverse_scale() const;
  void inspect(at::TensorList gradients, const at::Tensor& inverse_scale, Stage stage);

  GradScalerConfig config_;
  bool enabled_;
  Stage stage_ = Stage::kReady;
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  at::Tensor found_inf_;
  at::Tensor one_;
  std::unordered_set<const void*> unscaled_;  // tensors, of this step
  std::unordered_set<const void*> stepped_;   // optimizers
};

}  // namespace brim::amp
