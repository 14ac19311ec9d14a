// LibTorch's operators on the simulated GPU. Its memory is the host's, so an operator computes on the
// CPU, on tensors that share the device's memory: when its stream has done what was enqueued before,
// but without waiting for any other stream. Copies to and from pinned memory are late.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/graph.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

/// A new tensor on the device that holds what an operator made.
at::Tensor on_device(const at::Tensor& made) {
  at::Tensor result = at::detail::empty_strided_generic(
      made.sizes(), made.strides(), device_memory(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
      made.scalar_type());
  if (made.numel() > 0) on_host(result).copy_(made);
  return result;
}

void host_waits_here(const char* what) {
  TORCH_CHECK(tape() == nullptr, "operation not permitted when stream is capturing: ", what);
  TORCH_CHECK(host_waits() != HostWaits::kRefused, "called a synchronizing CUDA operation: ", what);
  if (host_waits() == HostWaits::kWarned)
    TORCH_WARN("called a synchronizing CUDA operation: ", what);
}

/// One call of an operator: its arguments on the CPU, and its results back on the device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(*stack) {}

  void run() {
    const torch::jit::Stack before = arguments();
    compute();
    for (c10::IValue& value : results()) value = result(value);
    if (tape() == nullptr) return;
    tape()->push_back(
        [op = op_, before, made = torch::jit::Stack(results().begin(), results().end())] {
          const at::AutoDispatchBelowAutograd below;
          torch::jit::Stack stack = before;
          Call again(op, &stack);
          again.compute();
          for (size_t i = 0; i < made.size(); ++i) again.write(again.results()[i], made[i]);
        });
  }

 private:
  struct Pair {
    at::Tensor device, host;
  };

  torch::jit::Stack arguments() const {
    return {stack_.end() - static_cast<int64_t>(op_.schema().arguments().size()), stack_.end()};
  }
  std::span<c10::IValue> results() { return std::span(stack_).last(op_.schema().returns().size()); }

  void compute() {
    const auto& arguments = op_.schema().arguments();
    const std::span values = std::span(stack_).last(arguments.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = argument(values[i], *arguments[i].type());
    stream(current_stream()).synchronize();
    op_.callBoxed(&stack_);
    adopt_new_sizes();
  }

  /// What was made again, to the tensors that were made first.
  void write(const c10::IValue& from, const c10::IValue& to) {
    if (from.isTensorList()) {
      for (size_t i = 0; i < from.toTensorVector().size(); ++i) {
        write(from.toTensorVector()[i], to.toTensorVector()[i]);
      }
    } else if (from.isTensor() && from.toTensor().defined()) {
      const bool is_argument = std::ranges::any_of(
          pairs_, [&](const Pair& pair) { return pair.host.is_alias_of(from.toTensor()); });
      if (!is_argument) on_host(to.toTensor()).copy_(from.toTensor());
    }
  }

  at::Tensor argument(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    pairs_.push_back({tensor, on_host(tensor)});
    return pairs_.back().host;
  }

  c10::IValue argument(const c10::IValue& value, const c10::Type& type) {
    const bool takes_generator = type.str() == "Generator?";
    if (takes_generator) return generator();
    if (value.isTensor()) return argument(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(argument(tensor));
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        tensors.push_back(tensor ? std::optional(argument(*tensor)) : std::nullopt);
      }
      return tensors;
    }
    if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
    return value;
  }

  /// Of out arguments that the operator has made larger.
  void adopt_new_sizes() {
    for (auto& [device, host] : pairs_) {
      if (host.storage().data() == device.storage().data()) {
        if (host.sizes() != device.sizes() || host.strides() != device.strides()) {
          device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
        }
        continue;
      }
      const at::Tensor made = on_device(host);
      device.unsafeGetTensorImpl()->set_storage_keep_dtype(made.storage());
      device.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
      device.unsafeGetTensorImpl()->set_storage_offset(0);
    }
  }

  at::Tensor result(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    for (const auto& [device, host] : pairs_) {
      if (host.is_same(tensor)) return device;
    }
    for (const auto& [device, host] : pairs_) {
      if (!host.is_alias_of(tensor)) continue;
      at::Tensor view = at::detail::make_tensor<at::TensorImpl>(
          c10::TensorImpl::VIEW, c10::Storage(device.storage()), device.key_set(), tensor.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                        tensor.storage_offset());
      return view;
    }
    return on_device(tensor);
  }

  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) return result(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(result(tensor));
    return tensors;
  }

  const c10::OperatorHandle op_;
  torch::jit::Stack& stack_;
  std::vector<Pair> pairs_;
};

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const std::set<std::string> kWaiting = {"aten::nonzero", "aten::masked_select",
                                                 "aten::equal", "aten::_local_scalar_dense"};
  if (kWaiting.contains(op.schema().name())) host_waits_here(op.schema().name().c_str());
  Call(op, stack).run();
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, device_memory(),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, device_memory(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

bool is_one_block(const at::Tensor& to, const at::Tensor& from) {
  return to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
         to.strides() == from.strides() && to.is_non_overlapping_and_dense();
}

/// Pinned memory of a copy that runs by itself; null: it does not.
std::shared_ptr<void> pinned_for(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (!non_blocking || to.is_cuda() == from.is_cuda() || !is_one_block(to, from)) return nullptr;
  return pinned_block((to.is_cuda() ? from : to).const_data_ptr());
}

void copy_now(const at::Tensor& to, const at::Tensor& from, const std::shared_ptr<void>& pinned) {
  Stream& queue = stream(current_stream());
  if (pinned == nullptr) {
    queue.synchronize();
    (to.is_cuda() ? on_host(to) : to).copy_(from.is_cuda() ? on_host(from) : from);
    return;
  }
  // The device's memory may be freed meanwhile: that is done in the stream's order.
  queue.enqueue_late([pinned, target = to.mutable_data_ptr(), source = from.const_data_ptr(),
                      bytes = to.nbytes()] { std::memcpy(target, source, bytes); });
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return to;
  const auto pinned = pinned_for(to, from, non_blocking);
  const bool is_between = to.is_cuda() != from.is_cuda();
  if (is_between && pinned == nullptr && (!non_blocking || !to.is_cuda()))
    host_waits_here("a copy");
  copy_now(to, from, pinned);
  if (tape() != nullptr) tape()->push_back([=] { copy_now(to, from, pinned); });
  return to;
}

void record_stream(at::Tensor& tensor, c10::Stream used) {
  use_on_stream(tensor.storage().data_ptr(), used.id());
}

const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  return at::native::resize_(tensor, size, format);
}

}  // namespace

at::Tensor on_host(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  c10::DataPtr data(const_cast<void*>(storage.data()), c10::DeviceType::CPU);
  auto impl = c10::make_intrusive<at::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
                   c10::GetCPUAllocator(), /*resizable=*/true),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  return at::Tensor(std::move(impl));
}

HostWaits& host_waits() {
  static HostWaits mode = HostWaits::kAllowed;
  return mode;
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("copy_", TORCH_FN(copy));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("set_", TORCH_FN(at::native::set_cpu_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  // Without these LibTorch looks for kernels that only its CUDA half has.
  for (const char* name : {"convolution", "convolution_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fall_back>());
  }
}

}  // namespace brim::simulated
