// Floating-point operations of matrix products, counted as they run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace brim::nn {

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
