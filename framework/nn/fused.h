// Operations that do the work of several in one go. A module that has such a form is Fusable and
// starts without it: fused results equal the others but for rounding.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>

namespace brim::nn {

class Fusable {
 public:
  virtual ~Fusable() = default;
  bool is_fused() const { return is_fused_; }
  void use_fused(bool on) { is_fused_ = on; }

 private:
  bool is_fused_ = false;
};

/// Turns fused operations on or off in the module and every Fusable inside; returns how many there
/// are.
int64_t use_fused(torch::nn::Module& module, bool on);

}  // namespace brim::nn
