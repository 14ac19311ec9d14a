// Which components of a model hold memory during a step: what a step allocates counts for the
// module whose parameters an operator read last, until it is freed.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "framework/telemetry/memory_account.h"

namespace brim::train {

inline constexpr size_t kLargestModules = 10;  // as many as reports show

/// Watches the allocations of this thread, and of backward passes that it begins, while this lives.
/// Costs some microseconds an operator: for single steps. While LibTorch's profiler runs, which
/// has the same place in the allocators, nothing is seen.
class ModuleMemory {
 public:
  ModuleMemory(const torch::nn::Module& model, c10::Device device);
  ~ModuleMemory();
  ModuleMemory(const ModuleMemory&) = delete;
  ModuleMemory& operator=(const ModuleMemory&) = delete;

  /// What modules held when all together held most, largest first, at most `count`.
  std::vector<telemetry::ModuleBytes> largest(size_t count) const;
  /// What modules hold now, largest first.
  std::vector<telemetry::ModuleBytes> held() const;

 private:
  class Observer;
  struct Installed;
  std::shared_ptr<Observer> observer_;
  std::unique_ptr<Installed> installed_;  // null where the profiler runs
};

}  // namespace brim::train
