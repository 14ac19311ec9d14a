// Floating-point operations of matrix products, counted as they run.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace brim::nn {

/// Operations of one call with these inputs: two for each multiply-add.
using ProductFlops = int64_t (*)(c10::ArrayRef<const c10::IValue> inputs);

/// Of an operator that multiplies matrices, forward or backward, such as "aten::mm"; null of any
/// other. Backward passes count as PyTorch's FlopCounterMode has them: attention computes its
/// scores again.
ProductFlops product_flops(std::string_view name);

/// While it lives, counts what this thread's convolutions, matrix products and attention take: two
/// operations for each multiply-add, everything else nothing, as PyTorch's FlopCounterMode counts.
/// Only what is run forward; off under autocast, whose casts run operators twice. Costs some
/// microseconds an operator.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// So far.
  int64_t total() const;
  /// Operators of any kind that were called, without those that they call.
  int64_t operators() const;
  /// By operator, such as "convolution" or "addmm".
  const std::map<std::string, int64_t>& by_operator() const;

 private:
  class Installed;
  std::unique_ptr<Installed> installed_;
};

/// Training runs each product three times: forward, for the gradient of its input, and for that of
/// its weight.
inline constexpr int64_t kTrainingPasses = 3;

}  // namespace brim::nn
