#include "framework/nn/without_storage.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "framework/nn/fake_tensors.h"

namespace brim::nn {
namespace {

bool is_large(const torch::jit::Stack& arguments) {
  bool is = false;
  for (const c10::IValue& argument : arguments) {
    map_tensors(argument, [&](const at::Tensor& t) {
      is = is || (t.is_cpu() && t.layout() == at::kStrided &&
                  static_cast<int64_t>(t.nbytes()) >= kLargeTensorBytes);
      return t;
    });
  }
  return is;
}

/// Writes to its first argument, which is also all that it returns, if anything.
bool is_in_place(const c10::FunctionSchema& schema) {
  return schema.name().ends_with('_') && schema.returns().size() <= 1;
}

void run_large_by_shape(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  const auto last = torch::jit::last(stack, count);
  torch::jit::Stack arguments(last.begin(), last.end());
  if (!is_large(arguments) || changes_views(op)) {
    run_below(op, keys, stack);
  } else if (is_in_place(op.schema())) {
    torch::jit::drop(stack, count);
    if (!op.schema().returns().empty()) stack.push_back(arguments.front());
  } else if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    auto results = infer_results(op, std::move(arguments));
    torch::jit::drop(stack, count);
    for (c10::IValue& result : results) stack.push_back(std::move(result));
  } else {  // what it is composed of comes here again
    run_below(op, keys, stack);
  }
}

void run_fake(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (OperatorHandler* handler = current_handler()) return handler->run(op, keys, *stack);
  run_large_by_shape(op, keys, *stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fake>());
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

WithoutStorage::WithoutStorage() : before_(c10::GetCPUAllocator()), guard_(kFakeKey) {
  c10::SetCPUAllocator(&address_space());
}

WithoutStorage::~WithoutStorage() { c10::SetCPUAllocator(before_); }

int64_t WithoutStorage::held_bytes() { return fake_bytes_held(); }
int64_t WithoutStorage::peak_bytes() { return fake_bytes_peak(); }
void WithoutStorage::reset_peak() { reset_fake_bytes_peak(); }

bool WithoutStorage::is_on() {
  return c10::impl::tls_is_dispatch_key_included(kFakeKey) && current_handler() == nullptr;
}

}  // namespace brim::nn
