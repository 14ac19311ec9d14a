#include "framework/nn/deferred_init.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/base/error.h"

namespace brim::nn {
namespace {

/// Operators of this thread go to the handler while it lives.
class Recording {
 public:
  explicit Recording(OperatorHandler& handler)
      : outer_(exchange_handler(&handler)), guard_(kFakeKey) {}
  ~Recording() { exchange_handler(outer_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  OperatorHandler* outer_;
  c10::impl::IncludeDispatchKeyGuard guard_;
};

torch::jit::Stack arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto last = torch::jit::last(stack, op.schema().arguments().size());
  return torch::jit::Stack(last.begin(), last.end());
}

void leave(torch::jit::Stack& stack, size_t arguments, const std::vector<c10::IValue>& results) {
  torch::jit::drop(stack, arguments);
  stack.insert(stack.end(), results.begin(), results.end());
}

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    map_tensors(value, [&](const at::Tensor& t) {
      tensors.push_back(t);
      return t;
    });
  }
  return tensors;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool writes(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), is_written);
}

bool draws(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::nondeterministic_seeded); }

bool gives_tensors_alone(const c10::OperatorHandle& op) {
  return std::ranges::all_of(op.schema().returns(), [](const c10::Argument& result) {
    const auto kind = result.type()->kind();
    return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
  });
}

bool is_one_of(const c10::OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, std::string_view(op.schema().name())) != names.end();
}

/// Whether nothing is left of what was in the first argument's storage.
bool overwrites(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  if (!is_one_of(
          op, {"aten::normal_", "aten::uniform_", "aten::zero_", "aten::fill_", "aten::copy_"})) {
    return false;
  }
  const at::Tensor& target = arguments.front().toTensor();
  return target.is_non_overlapping_and_dense() && target.nbytes() == target.storage().nbytes();
}

/// Whether it gives each of the tensor's rows a row's values.
bool copies_rows(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                 const at::Tensor& tensor) {
  if (!is_one_of(op, {"aten::copy_"}) || tensor.dim() == 0) return false;
  const at::Tensor& to = arguments[0].toTensor();
  return to.sizes() == tensor.sizes() && to.strides() == tensor.strides() &&
         to.storage_offset() == tensor.storage_offset() &&
         arguments[1].toTensor().sizes() == tensor.sizes();
}

at::Generator& default_generator() {
  static auto* generator = new at::Generator(at::detail::getDefaultCPUGenerator());
  return *generator;
}

/// With memory of its own, of no values.
at::Tensor with_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

}  // namespace

/// Memory for a storage while it lives; afterwards it is as it was.
struct DeferredInit::Memory {
  explicit Memory(c10::StorageImpl* of)
      : storage(of), before(of->set_data_ptr(c10::GetCPUAllocator()->allocate(of->nbytes()))) {}
  ~Memory() {
    if (storage != nullptr) storage->set_data_ptr_noswap(std::move(before));
  }
  Memory(Memory&& other) noexcept
      : storage(std::exchange(other.storage, nullptr)), before(std::move(other.before)) {}
  Memory& operator=(Memory&&) = delete;
  /// It is the caller's, and the storage is as it was.
  c10::DataPtr take() { return std::exchange(storage, nullptr)->set_data_ptr(std::move(before)); }

  c10::StorageImpl* storage;
  c10::DataPtr before;
};

void DeferredInit::record(const std::function<void()>& work) {
  const Recording recording(*this);
  work();
}

bool DeferredInit::is_exact(const std::map<std::string, at::Tensor>& kept) const {
  return is_exact_ && !is_kept_elsewhere(kept) &&
         std::ranges::none_of(deferred_, [](const auto& item) { return is_touched(item.second); });
}

/// Whether a storage has more tensors than `kept` and those of the steps.
bool DeferredInit::is_kept_elsewhere(const std::map<std::string, at::Tensor>& kept) const {
  std::map<const c10::StorageImpl*, size_t> tensors;
  std::set<const void*> counted;
  const auto count = [&](const at::Tensor& tensor) {
    if (is_deferred(tensor) && counted.insert(tensor.unsafeGetTensorImpl()).second) {
      tensors[storage_of(tensor)] += 1;
    }
  };
  for (const auto& [name, tensor] : kept) count(tensor);
  for (const Step& step : steps_) {
    std::ranges::for_each(tensors_of(step.arguments), count);
    std::ranges::for_each(step.results, count);
  }
  return std::ranges::any_of(deferred_, [&](const auto& item) {
    return item.second.use_count() > 1 + tensors[item.first];
  });
}

bool DeferredInit::is_deferred(const at::Tensor& tensor) const {
  const c10::StorageImpl* storage = storage_of(tensor);
  return storage != nullptr && deferred_.contains(storage);
}

bool DeferredInit::has_deferred(const torch::jit::Stack& arguments) const {
  return std::ranges::any_of(tensors_of(arguments),
                             [&](const at::Tensor& tensor) { return is_deferred(tensor); });
}

void DeferredInit::run(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack& stack) {
  const torch::jit::Stack arguments = arguments_of(op, stack);
  const bool has_tensors = !tensors_of(arguments).empty();
  if (!has_tensors) return make(op, keys, stack);
  if (!has_deferred(arguments) || changes_views(op)) return run_now(op, keys, stack);
  if (!gives_tensors_alone(op)) {  // such as item(): their values are asked for
    is_exact_ = false;
    return run_now(op, keys, stack);
  }
  if (writes(op)) return defer_write(op, stack);
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return defer_results(op, stack);
  run_below(op, keys, stack);  // what it is composed of comes here again
}

void DeferredInit::run_now(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                           torch::jit::Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard itself(kFakeKey);
  run_below(op, keys, stack);
}

void DeferredInit::make(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack& stack) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return run_below(op, keys, stack);
  const auto results = infer_results(op, arguments_of(op, stack));
  const std::vector<at::Tensor> tensors = tensors_of(results);
  const bool is_large = std::ranges::any_of(tensors, [](const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes()) >= kLargeTensorBytes;
  });
  if (!is_large) return run_now(op, keys, stack);
  defer_results(op, stack);
}

DeferredInit::Step DeferredInit::step_of(const c10::OperatorHandle& op,
                                         const torch::jit::Stack& arguments) {
  const c10::impl::ExcludeDispatchKeyGuard itself(kFakeKey);
  Step step{.op = op};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_target = is_written(op.schema().arguments()[i]);
    step.arguments.push_back(map_tensors(arguments[i], [&](const at::Tensor& t) {
      if (is_deferred(t)) {
        (is_target ? step.writes : step.reads).insert(storage_of(t));
        return at::Tensor(t.variable_data());  // whatever set_data() makes of this one
      }
      if (is_target) is_exact_ = false;
      // A file's, which stay as they are, or few.
      return static_cast<int64_t>(t.nbytes()) >= kLargeTensorBytes ? t : t.detach().clone();
    }));
    if (arguments[i].isGenerator()) is_exact_ = false;  // of the work's own
  }
  if (!draws(op)) return step;
  if (step.writes.empty() || !step.reads.empty()) is_exact_ = false;
  step.generator = default_generator().clone();
  torch::jit::Stack drawn;
  for (const c10::IValue& argument : step.arguments) {
    drawn.push_back(map_tensors(
        argument, [&](const at::Tensor& t) { return is_deferred(t) ? with_memory(t) : t; }));
  }
  op.callBoxed(drawn);
  return step;
}

void DeferredInit::defer_write(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const torch::jit::Stack arguments = arguments_of(op, stack);
  steps_.push_back(step_of(op, arguments));
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(op.schema().arguments()[i])) results.push_back(arguments[i]);
  }
  if (op.schema().returns().empty()) results.clear();
  if (op.schema().returns().size() != results.size()) {
    throw Error(Exit::kBug, "{} does not return what it writes to", op.schema().name());
  }
  leave(stack, arguments.size(), results);
}

void DeferredInit::defer_results(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const torch::jit::Stack arguments = arguments_of(op, stack);
  const auto results = infer_results(op, arguments);
  Step step = step_of(op, arguments);
  step.results = tensors_of(results);
  for (at::Tensor& result : step.results) {
    deferred_.emplace(storage_of(result), result.storage());
    step.writes.insert(storage_of(result));
    result = result.variable_data();
  }
  // An empty tensor has no values to compute.
  if (!is_one_of(op, {"aten::empty", "aten::empty_strided"})) steps_.push_back(std::move(step));
  leave(stack, arguments.size(), results);
}

/// In the order in which they run, those that `target` depends on; `needed` are all storages that
/// they take.
std::vector<const DeferredInit::Step*> DeferredInit::steps_for(c10::StorageImpl* target,
                                                               Storages& needed) const {
  std::vector<const Step*> steps;
  Storages open = {target};  // whose earlier values matter
  needed = open;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto is_open = [&](c10::StorageImpl* storage) { return open.contains(storage); };
    if (std::ranges::none_of(step->writes, is_open)) continue;
    steps.push_back(&*step);
    if (step->results.empty() && overwrites(step->op, step->arguments)) {
      for (c10::StorageImpl* storage : step->writes) open.erase(storage);
    }
    for (const Storages& storages : {step->reads, step->writes}) {
      needed.insert(storages.begin(), storages.end());
    }
    open.insert(step->reads.begin(), step->reads.end());
  }
  std::ranges::reverse(steps);
  return steps;
}

void DeferredInit::fill(at::Tensor& tensor) {
  fill_rows(tensor, 0, tensor.dim() == 0 ? 1 : tensor.size(0));
}

bool DeferredInit::fill_rows(at::Tensor& tensor, int64_t first, int64_t rows) {
  if (!is_deferred(tensor)) return true;
  bool is_whole = true;
  const at::NoGradGuard no_grad;
  c10::StorageImpl* target = storage_of(tensor);
  Storages needed;
  const std::vector<const Step*> steps = steps_for(target, needed);
  Memory own(target);
  std::vector<Memory> others;
  for (c10::StorageImpl* storage : needed) {
    if (storage != target) others.emplace_back(storage);
  }
  const at::Generator now = default_generator().clone();
  for (const Step* step : steps) {
    if (step->generator) default_generator().set_state(step->generator->get_state());
    torch::jit::Stack stack = step->arguments;
    if (steps.size() == 1 && copies_rows(step->op, stack, tensor)) {
      const auto copy = [&](int64_t from, int64_t count) {
        const auto part = [&](size_t i) { return stack[i].toTensor().narrow(0, from, count); };
        part(0).copy_(part(1));
      };
      is_whole = rows == tensor.size(0);
      copy(first, rows);
      if (!is_whole) copy(0, 1);
      break;
    }
    step->op.callBoxed(stack);
    const std::vector<at::Tensor> results = tensors_of(stack);
    for (size_t i = 0; i < step->results.size(); ++i) {
      at::Tensor(step->results[i]).copy_(results[i]);
    }
  }
  default_generator().set_state(now.get_state());
  const c10::Storage storage(c10::Storage::use_byte_size_t(), target->nbytes(), own.take(),
                             c10::GetCPUAllocator(), /*resizable=*/true);
  tensor.set_data(at::empty({0}, tensor.options().requires_grad(false))
                      .set_(storage, tensor.storage_offset(), tensor.sizes(), tensor.strides()));
  return is_whole;
}

}  // namespace brim::nn
