// Models, optimizers and training steps of which only shapes and formats matter: how many
// parameters, operations and bytes a model takes is known without its memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace brim::nn {

/// While it lives, CPU tensors that this thread makes have address space in place of memory, and
/// operators on large ones give tensors of the right shape, format and size, whose values are
/// never computed and read as 0. Views and operators on small tensors alone run as usual, and so
/// does an operator whose result's shape is only known to its kernel. Allocations are reported to
/// LibTorch's profiler as ever. One at a time; the tensors may outlive it.
class WithoutStorage {
 public:
  WithoutStorage();
  ~WithoutStorage();
  WithoutStorage(const WithoutStorage&) = delete;
  WithoutStorage& operator=(const WithoutStorage&) = delete;

  /// Whether this thread is within one.
  static bool is_on();

  /// Bytes that all such tensors of this process would hold now, and the most since reset_peak().
  static int64_t held_bytes();
  static int64_t peak_bytes();
  static void reset_peak();

 private:
  c10::Allocator* before_;
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace brim::nn
