// Something to do before an operator reads a tensor: the place where a parameter that still travels
// is waited for, whatever model reads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace brim::distributed {

/// While it lives, every LibTorch operator that this thread calls first calls `what` with each of
/// its tensors, those inside lists included. Operators that `what` calls are left alone. It costs
/// each operator about a microsecond. An operator can't be stopped from here: `what` must not
/// throw. One at a time on a thread.
class BeforeUse {
 public:
  using What = std::function<void(const at::Tensor&)>;

  explicit BeforeUse(What what);
  ~BeforeUse();
  BeforeUse(const BeforeUse&) = delete;
  BeforeUse& operator=(const BeforeUse&) = delete;

 private:
  What what_;
  uint64_t handle_;
};

}  // namespace brim::distributed
