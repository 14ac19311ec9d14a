// Operations that do the work of several in one go. A module that has such a form is Fusable and
// starts without it: fused results equal the others but for rounding.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>

namespace brim::nn {

/// When an operation takes its fused form: never; where that is usually faster; where it is faster
/// for these shapes on this machine (measured_forms.h); or wherever there is one.
enum class Fused { kNever, kUsual, kMeasured, kAlways };

class Fusable {
 public:
  virtual ~Fusable() = default;
  Fused fused() const { return fused_; }
  bool is_fused() const { return fused_ != Fused::kNever; }
  void use_fused(Fused when) { fused_ = when; }

 private:
  Fused fused_ = Fused::kNever;
};

/// Sets that in the module and every Fusable inside; returns how many there are.
int64_t use_fused(torch::nn::Module& module, Fused when);

}  // namespace brim::nn
