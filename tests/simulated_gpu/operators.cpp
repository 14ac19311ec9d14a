// LibTorch's operators on the simulated GPU. Its memory is the host's, so an operator computes on
// the CPU, on tensors that share the device's memory, in the order of its stream: later, where the
// shapes of its results are known from those of its arguments, else at once, for which the host
// waits without a word. Copies to and from pinned memory are late.
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
#include <mutex>
#include <set>
#include <string>

#include "framework/nn/fake_tensors.h"
#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/graph.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

using nn::map_tensors;

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

/// A tensor of the device, and what stands for it in a call elsewhere.
struct Pair {
  at::Tensor device, other;
};

const Pair* find(const std::vector<Pair>& pairs, const at::Tensor& other) {
  const auto found =
      std::ranges::find_if(pairs, [&](const Pair& pair) { return pair.other.is_same(other); });
  return found == pairs.end() ? nullptr : &*found;
}

bool is_alias_of_any(const at::Tensor& tensor, const std::vector<Pair>& pairs) {
  return std::ranges::any_of(pairs,
                             [&](const Pair& pair) { return pair.other.is_alias_of(tensor); });
}

/// Calls the operator on another device, with `stand_in` of each of the GPU's tensors.
template <class StandIn>
torch::jit::Stack call_on(c10::DeviceType type, const c10::OperatorHandle& op,
                          torch::jit::Stack stack, std::vector<Pair>& pairs,
                          const StandIn& stand_in) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < stack.size(); ++i) {
    if (arguments[i].type()->str() == "Generator?") stack[i] = generator();
    if (stack[i].isDevice()) stack[i] = c10::Device(type);
    stack[i] = map_tensors(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) return tensor;
      pairs.push_back({tensor, stand_in(tensor)});
      return pairs.back().other;
    });
  }
  op.callBoxed(&stack);
  return stack;
}

// --- at once
// --------------------------------------------------------------------------------------

/// Out arguments that the operator has made larger have memory of their own.
void adopt_new_sizes(const std::vector<Pair>& pairs) {
  for (const auto& [device, host] : pairs) {
    at::TensorImpl* const impl = device.unsafeGetTensorImpl();
    if (host.storage().data() == device.storage().data()) {
      if (host.sizes() == device.sizes() && host.strides() == device.strides()) continue;
      impl->set_sizes_and_strides(host.sizes(), host.strides());
      continue;
    }
    const at::Tensor made = on_device(host);
    impl->set_storage_keep_dtype(made.storage());
    impl->set_sizes_and_strides(made.sizes(), made.strides());
    impl->set_storage_offset(0);
  }
}

at::Tensor result_on_device(const at::Tensor& made, const std::vector<Pair>& pairs) {
  if (const Pair* argument = find(pairs, made)) return argument->device;
  for (const auto& [device, host] : pairs) {
    if (!host.is_alias_of(made)) continue;
    at::Tensor view = at::detail::make_tensor<at::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(device.storage()), device.key_set(), made.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides(),
                                                      made.storage_offset());
    return view;
  }
  return on_device(made);
}

torch::jit::Stack run(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  stream(current_stream()).synchronize();
  std::vector<Pair> pairs;
  torch::jit::Stack results = call_on(c10::DeviceType::CPU, op, arguments, pairs, on_host);
  adopt_new_sizes(pairs);
  for (c10::IValue& value : results) {
    value = map_tensors(value,
                        [&](const at::Tensor& tensor) { return result_on_device(tensor, pairs); });
  }
  return results;
}

/// For a replay: the same results in the memory that they had first.
void run_again(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
               const torch::jit::Stack& first) {
  const at::AutoDispatchBelowAutograd below;
  std::vector<at::Tensor> targets;
  for (const c10::IValue& value : first) {
    map_tensors(value, [&](const at::Tensor& tensor) {
      targets.push_back(tensor);
      return tensor;
    });
  }
  std::vector<Pair> pairs;
  size_t next = 0;
  for (const c10::IValue& value : call_on(c10::DeviceType::CPU, op, arguments, pairs, on_host)) {
    map_tensors(value, [&](const at::Tensor& tensor) {
      const at::Tensor& target = targets.at(next++);
      const bool is_argument = target.const_data_ptr() == tensor.const_data_ptr();
      if (!is_argument) on_host(target).copy_(tensor);
      return tensor;
    });
  }
}

// --- later, on the stream
// -------------------------------------------------------------------------

/// What the operator will return, by the shapes of its arguments; nullopt: they don't say.
std::optional<torch::jit::Stack> results_by_shape(const c10::OperatorHandle& op,
                                                  const torch::jit::Stack& arguments) {
  static std::mutex mutex;
  static std::set<std::string> without;  // operators that can't be called so
  const std::string name = op.schema().name() + "." + op.schema().overload_name();
  {
    const std::lock_guard lock(mutex);
    if (without.contains(name)) return std::nullopt;
  }
  for (const auto& argument : op.schema().arguments()) {
    if (argument.type()->str() == "Generator?") return std::nullopt;  // it draws now
  }
  std::vector<Pair> pairs;
  torch::jit::Stack results;
  try {
    results = call_on(c10::DeviceType::Meta, op, arguments, pairs, [](const at::Tensor& tensor) {
      return at::empty_strided(tensor.sizes(), tensor.strides(),
                               tensor.options().device(c10::DeviceType::Meta));
    });
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex);
    without.insert(name);
    return std::nullopt;
  }
  bool is_known = std::ranges::all_of(pairs, [](const Pair& pair) {
    return pair.other.sizes() == pair.device.sizes() &&
           pair.other.strides() == pair.device.strides();
  });
  for (c10::IValue& value : results) {
    is_known &= value.isTensor() || value.isTensorList();
    value = map_tensors(value, [&](const at::Tensor& tensor) {
      if (const Pair* argument = find(pairs, tensor)) return argument->device;
      is_known &= tensor.is_meta() && !is_alias_of_any(tensor, pairs);
      if (!is_known) return tensor;
      return at::Tensor(at::detail::empty_strided_generic(
          tensor.sizes(), tensor.strides(), device_memory(),
          c10::DispatchKeySet(c10::DispatchKey::CUDA), tensor.scalar_type()));
    });
  }
  return is_known ? std::optional(std::move(results)) : std::nullopt;
}

/// The same tensors on the CPU, which do not keep the device's memory from being freed.
c10::IValue lent(const c10::IValue& value) {
  return map_tensors(value, [](const at::Tensor& tensor) {
    return tensor.is_cuda() ? on_host(tensor) : tensor.clone();
  });
}

void enqueue(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
             const torch::jit::Stack& results) {
  torch::jit::Stack inputs, outputs;
  std::ranges::transform(arguments, std::back_inserter(inputs), lent);
  std::ranges::transform(results, std::back_inserter(outputs), lent);
  stream(current_stream()).enqueue([=] { run_again(op, inputs, outputs); });
}

// -------------------------------------------------------------------------------------------------

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_device();
  static const std::set<std::string> kWaiting = {"aten::nonzero", "aten::masked_select",
                                                 "aten::equal", "aten::_local_scalar_dense"};
  if (kWaiting.contains(op.schema().name())) host_waits_here(op.schema().name().c_str());
  const torch::jit::Stack arguments(
      stack->end() - static_cast<int64_t>(op.schema().arguments().size()), stack->end());
  std::optional<torch::jit::Stack> results;
  if (tape() == nullptr) results = results_by_shape(op, arguments);
  if (results) {
    enqueue(op, arguments, *results);
  } else {
    results = run(op, arguments);
  }
  if (tape() != nullptr) {
    tape()->push_back([op, arguments, first = *results] { run_again(op, arguments, first); });
  }
  torch::jit::drop(*stack, arguments.size());
  stack->insert(stack->end(), results->begin(), results->end());
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
  // The device's memory may be freed meanwhile: that is done in the stream's order.
  if (pinned != nullptr) {
    queue.enqueue_late([pinned, target = to.mutable_data_ptr(), source = from.const_data_ptr(),
                        bytes = to.nbytes()] { std::memcpy(target, source, bytes); });
  } else if (to.is_cuda() && from.is_cuda()) {
    queue.enqueue([target = on_host(to), source = on_host(from)] {
      const at::AutoDispatchBelowAutograd below;
      target.copy_(source);
    });
  } else {
    queue.synchronize();
    (to.is_cuda() ? on_host(to) : to).copy_(from.is_cuda() ? on_host(from) : from);
  }
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return to;
  const auto pinned = pinned_for(to, from, non_blocking);
  const bool is_between = to.is_cuda() != from.is_cuda();
  if (is_between && pinned == nullptr && (!non_blocking || !to.is_cuda()))
    host_waits_here("a copy");
  copy_now(to, from, pinned);
  if (tape() == nullptr) return to;
  tape()->push_back([=] { copy_now(to, from, pinned); });
  stream(current_stream()).synchronize();
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
