#include "framework/nn/without_storage.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace brim::nn {
namespace {

// LibTorch has the key for tensors that only look like some, below autograd and autocast and above
// the kernels, and registers nothing there.
constexpr auto kKey = c10::DispatchKey::Fake;
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);
constexpr int64_t kLargeBytes = 64 << 10;

/// In front of a block, which it keeps aligned.
struct alignas(64) Header {
  size_t bytes;  // of the block
};

std::atomic<int64_t> held{0}, peak{0};

void report(void* block, int64_t change_bytes) {
  const int64_t now = held += change_bytes;
  int64_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  c10::reportMemoryUsageToProfiler(block, change_bytes, 0, 0, c10::kCPU);
}

void free_block(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  const size_t bytes = header->bytes;
  report(block, -static_cast<int64_t>(bytes));
  ::munmap(header, sizeof(Header) + bytes);
}

/// Pages that no one writes to take no memory.
class AddressSpace final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_block, c10::kCPU};
    void* pages = ::mmap(nullptr, sizeof(Header) + bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, pages != MAP_FAILED, "out of address space: a tensor of ",
                     bytes, " bytes");
    auto* header = static_cast<Header*>(pages);
    header->bytes = bytes;
    void* block = header + 1;
    report(block, static_cast<int64_t>(bytes));
    return {block, block, &free_block, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

template <class F>
void for_each_tensor(const c10::IValue& value, const F& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, f);
  }
}

bool is_large(const torch::jit::Stack& arguments) {
  bool is = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& t) {
      is = is || (t.is_cpu() && t.layout() == at::kStrided &&
                  static_cast<int64_t>(t.nbytes()) >= kLargeBytes);
    });
  }
  return is;
}

/// Whether results are views of arguments, or arguments become other views.
bool changes_views(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::inplace_view)) return true;
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

/// Writes to its first argument, which is also all that it returns, if anything.
bool is_in_place(const c10::FunctionSchema& schema) {
  return schema.name().ends_with('_') && schema.returns().size() <= 1;
}

c10::IValue on(c10::Device device, const c10::IValue& value) {
  const auto moved = [&](const at::Tensor& t) {
    return t.defined() ? at::empty_strided(t.sizes(), t.strides(), t.options().device(device)) : t;
  };
  if (value.isTensor()) return moved(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(moved(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) {
      list.push_back(t ? std::optional(moved(*t)) : std::nullopt);
    }
    return list;
  }
  return value.isDevice() ? c10::IValue(device) : value;
}

/// The results as the meta device knows them, on the CPU.
void infer(const c10::OperatorHandle& op, torch::jit::Stack& stack, torch::jit::Stack arguments) {
  const c10::impl::ExcludeDispatchKeyGuard no_inference(kKey);
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  for (c10::IValue& argument : arguments) argument = on(c10::kMeta, argument);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &arguments);
  torch::jit::drop(stack, op.schema().arguments().size());
  for (const c10::IValue& result : arguments) stack.push_back(on(c10::kCPU, result));
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const auto last = torch::jit::last(*stack, count);
  torch::jit::Stack arguments(last.begin(), last.end());
  if (!is_large(arguments) || changes_views(op)) {
    op.redispatchBoxed(keys & kBelow, stack);
  } else if (is_in_place(op.schema())) {
    torch::jit::drop(*stack, count);
    if (!op.schema().returns().empty()) stack->push_back(arguments.front());
  } else if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    infer(op, *stack, std::move(arguments));
  } else {  // what it is composed of comes here again
    op.redispatchBoxed(keys & kBelow, stack);
  }
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
}

using MaybeTensor = std::optional<at::Tensor>;

// What LibTorch's meta device lacks outside of Python, as the CPU's kernels give it.

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& /*bias*/,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                       bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  const auto of = [](at::IntArrayRef list, size_t d) { return list[list.size() == 1 ? 0 : d]; };
  std::vector<int64_t> sizes = {x.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (size_t d = 0; d + 2 < static_cast<size_t>(x.dim()); ++d) {
    const auto side = static_cast<int64_t>(d) + 2;
    const int64_t reach = of(dilation, d) * (weight.size(side) - 1);
    const int64_t padded = 2 * of(padding, d);
    sizes.push_back(transposed ? (x.size(side) - 1) * of(stride, d) - padded + reach +
                                     of(output_padding, d) + 1
                               : (x.size(side) + padded - reach - 1) / of(stride, d) + 1);
  }
  TORCH_CHECK(std::ranges::min(sizes) > 0, "a convolution's kernel is larger than its input ",
              x.sizes());
  const auto is_last = [](const at::Tensor& t) {
    return t.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  };
  const bool channels_last = x.dim() == 4 && (is_last(x) || is_last(weight));
  return at::empty(sizes, x.options(),
                   channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

/// Statistics beside x: in the parameters' format, where that is another one.
at::TensorOptions of_statistics(const at::Tensor& x, const MaybeTensor& weight) {
  return x.options().dtype(weight && weight->defined() ? weight->scalar_type() : x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& x,
                                                                 at::IntArrayRef normalized,
                                                                 const MaybeTensor& weight,
                                                                 const MaybeTensor& /*bias*/,
                                                                 double /*eps*/) {
  std::vector<int64_t> sizes = x.sizes().vec();
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(normalized.size()), sizes.end(), 1);
  const auto statistics = of_statistics(x, weight);
  return {at::empty(x.sizes(), x.options()), at::empty(sizes, statistics),
          at::empty(sizes, statistics)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& x, const MaybeTensor& weight, const MaybeTensor& /*bias*/,
    const MaybeTensor& /*mean*/, const MaybeTensor& /*var*/, bool training, double /*momentum*/,
    double /*eps*/) {
  const auto statistics = of_statistics(x, weight);
  const std::vector<int64_t> channels = {training ? x.size(1) : 0};
  return {at::empty_like(x), at::empty(channels, statistics), at::empty(channels, statistics)};
}

at::Tensor index_select(const at::Tensor& x, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = x.sizes().vec();
  if (!sizes.empty())
    sizes.at(static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))) = index.numel();
  return at::empty(sizes, x.options());
}

std::tuple<at::Tensor, at::Tensor> flash_attention(const at::Tensor& query, const at::Tensor& /*k*/,
                                                   const at::Tensor& /*value*/, double /*dropout*/,
                                                   bool /*is_causal*/, const MaybeTensor& /*mask*/,
                                                   std::optional<double> /*scale*/) {
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const bool is_double = query.scalar_type() == at::kDouble;
  const auto sums = query.options().dtype(is_double ? at::kDouble : at::kFloat);
  return {at::empty({batch, length, heads, query.size(3)}, query.options()).transpose(1, 2),
          at::empty({batch, length, heads}, sums).transpose(1, 2)};
}

using Mask = std::array<bool, 3>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// An undefined tensor where the gradient is not asked for.
at::Tensor like(const at::Tensor& tensor, bool is_asked_for) {
  return is_asked_for && tensor.defined() ? at::empty_like(tensor) : at::Tensor();
}

Gradients convolution_backward(const at::Tensor& gradient, const at::Tensor& x,
                               const at::Tensor& weight, at::OptionalIntArrayRef /*bias_sizes*/,
                               at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/,
                               at::IntArrayRef /*dilation*/, bool /*transposed*/,
                               at::IntArrayRef /*output_padding*/, int64_t /*groups*/, Mask asked) {
  return {like(x, asked[0]), like(weight, asked[1]),
          asked[2] ? at::empty({gradient.size(1)}, weight.options()) : at::Tensor()};
}

Gradients native_layer_norm_backward(const at::Tensor& /*gradient*/, const at::Tensor& x,
                                     at::IntArrayRef /*normalized*/, const at::Tensor& /*mean*/,
                                     const at::Tensor& /*rstd*/, const MaybeTensor& weight,
                                     const MaybeTensor& bias, Mask asked) {
  return {like(x, asked[0]), like(weight.value_or(at::Tensor()), asked[1]),
          like(bias.value_or(at::Tensor()), asked[2])};
}

Gradients native_batch_norm_backward(const at::Tensor& /*gradient*/, const at::Tensor& x,
                                     const MaybeTensor& weight, const MaybeTensor& /*mean*/,
                                     const MaybeTensor& /*var*/, const MaybeTensor& /*saved_mean*/,
                                     const MaybeTensor& /*saved_invstd*/, bool /*training*/,
                                     double /*eps*/, Mask asked) {
  const at::Tensor scale = weight.value_or(at::Tensor());
  return {like(x, asked[0]), like(scale, asked[1]), like(scale, asked[2])};
}

at::Tensor embedding_dense_backward(const at::Tensor& gradient, const at::Tensor& /*indices*/,
                                    int64_t rows, int64_t /*padding*/, bool /*scales*/) {
  return at::empty({rows, gradient.size(-1)}, gradient.options());
}

Gradients flash_attention_backward(const at::Tensor& /*gradient*/, const at::Tensor& query,
                                   const at::Tensor& key, const at::Tensor& value,
                                   const at::Tensor& /*out*/, const at::Tensor& /*sums*/,
                                   double /*dropout*/, bool /*is_causal*/,
                                   const MaybeTensor& /*mask*/, std::optional<double> /*scale*/) {
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
}

at::Tensor adaptive_pool_backward(const at::Tensor& /*gradient*/, const at::Tensor& x) {
  return at::empty_like(x);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("convolution", convolution);
  library.impl("native_layer_norm", native_layer_norm);
  library.impl("native_batch_norm", native_batch_norm);
  library.impl("index_select", index_select);
  library.impl("_scaled_dot_product_flash_attention_for_cpu", flash_attention);
  library.impl("convolution_backward", convolution_backward);
  library.impl("native_layer_norm_backward", native_layer_norm_backward);
  library.impl("native_batch_norm_backward", native_batch_norm_backward);
  library.impl("embedding_dense_backward", embedding_dense_backward);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", flash_attention_backward);
  library.impl("_adaptive_avg_pool2d_backward", adaptive_pool_backward);
}

}  // namespace

WithoutStorage::WithoutStorage() : before_(c10::GetCPUAllocator()), guard_(kKey) {
  static auto* address_space = new AddressSpace;  // its tensors may outlive main()
  c10::SetCPUAllocator(address_space);
}

WithoutStorage::~WithoutStorage() { c10::SetCPUAllocator(before_); }

int64_t WithoutStorage::held_bytes() { return held; }
int64_t WithoutStorage::peak_bytes() { return peak; }
void WithoutStorage::reset_peak() { peak = held.load(); }

bool WithoutStorage::is_on() { return c10::impl::tls_is_dispatch_key_included(kKey); }

}  // namespace brim::nn
