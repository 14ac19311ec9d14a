// CPU tensors that have address space in place of memory, and operators on them of which only the
// results' shapes are known (PyTorch's fake tensors). What is done with an operator is said by
// without_storage.h and deferred_init.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace brim::nn {

// LibTorch has the key for tensors that only look like some, below autograd and autocast and above
// the kernels, and registers nothing there.
inline constexpr auto kFakeKey = c10::DispatchKey::Fake;
inline constexpr int64_t kLargeTensorBytes = 64 << 10;

/// Gets the operators of a thread on which the key is included.
class OperatorHandler {
 public:
  virtual ~OperatorHandler() = default;
  /// As a boxed kernel: takes the arguments from the stack and leaves the results there.
  virtual void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack& stack) = 0;
};

/// This thread's; null: what shapes alone ask for (without_storage.h). Returns the one before.
OperatorHandler* exchange_handler(OperatorHandler* handler);
OperatorHandler* current_handler();

/// Pages that no one writes to take no memory. They are reported to LibTorch's profiler.
c10::Allocator& address_space();
/// Whether someone has read or written the storage but for its start.
bool is_touched(const c10::Storage& storage);
/// Bytes that all such tensors of this process would hold now, and the most since reset.
int64_t fake_bytes_held();
int64_t fake_bytes_peak();
void reset_fake_bytes_peak();

/// The value with its tensors, those of lists among them, replaced by f of them. f gets no
/// undefined ones.
inline c10::IValue map_tensors(const c10::IValue& value,
                               const std::function<at::Tensor(const at::Tensor&)>& f) {
  const auto mapped = [&](const at::Tensor& t) { return t.defined() ? f(t) : t; };
  if (value.isTensor()) return mapped(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(mapped(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) {
      list.push_back(t ? std::optional(mapped(*t)) : std::nullopt);
    }
    return list;
  }
  return value;
}

/// Of an operator: whether results are views of arguments, or arguments become other views.
bool changes_views(const c10::OperatorHandle& op);
/// The kernels below, themselves operators that come here again.
void run_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
/// The results as the meta device knows them: CPU tensors of address space. The operator has a
/// kernel for that device.
std::vector<c10::IValue> infer_results(const c10::OperatorHandle& op, torch::jit::Stack arguments);

}  // namespace brim::nn
