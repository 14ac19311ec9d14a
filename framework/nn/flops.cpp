#include "framework/nn/flops.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace brim::nn {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;
using Count = ProductFlops;

int64_t product(at::IntArrayRef sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

at::IntArrayRef sizes(Inputs inputs, size_t index) { return inputs[index].toTensor().sizes(); }

/// [n, k] by [k, m]; with `first`, the index of the left factor.
template <size_t first>
int64_t count_mm(Inputs inputs) {
  return 2 * product(sizes(inputs, first)) * sizes(inputs, first + 1)[1];
}

/// [b, n, k] by [b, k, m]
template <size_t first>
int64_t count_bmm(Inputs inputs) {
  return 2 * product(sizes(inputs, first)) * sizes(inputs, first + 1)[2];
}

/// linear(input [n, i], weight [o, i], …)
int64_t count_linear(Inputs inputs) { return 2 * sizes(inputs, 0)[0] * product(sizes(inputs, 1)); }

/// What is asked for of (input, weight, bias).
int64_t wanted(const c10::IValue& mask, size_t most) {
  const std::vector<bool> gradients = mask.toBoolList().vec();
  int64_t count = 0;
  for (size_t i = 0; i < std::min(gradients.size(), most); ++i) count += gradients[i] ? 1 : 0;
  return count;
}

/// linear_cross_entropy(x [n, w], weight [v, w], labels, ignore_index, upcasts, wanted): the
/// logits, and a product for each gradient.
int64_t count_linear_cross_entropy(Inputs inputs) {
  return (1 + wanted(inputs[5], 2)) * 2 * sizes(inputs, 0)[0] * product(sizes(inputs, 1));
}

/// What a list of the convolution's says of a dimension: a single number counts for all.
int64_t of_dimension(const c10::IValue& list, size_t dimension) {
  const std::vector<int64_t> values = list.toIntVector();
  return values.size() == 1 ? values[0] : values.at(dimension);
}

/// Where the kernel is laid in an image; (input [N, C, …], weight, bias, stride, padding, …).
int64_t count_places(Inputs inputs, const c10::IValue& dilation) {
  const at::IntArrayRef input = sizes(inputs, 0), weight = sizes(inputs, 1);
  int64_t places = 1;
  for (size_t d = 0; d + 2 < input.size(); ++d) {
    const int64_t padded = input[d + 2] + 2 * of_dimension(inputs[4], d);
    const int64_t reach = of_dimension(dilation, d) * (weight[d + 2] - 1) + 1;
    places *= (padded - reach) / of_dimension(inputs[3], d) + 1;
  }
  return places;
}

/// convolution(input [N, C, …], weight, bias, stride, padding, dilation, transposed, …)
int64_t count_convolution(Inputs inputs) {
  const at::IntArrayRef input = sizes(inputs, 0);
  const bool is_transposed = inputs[6].toBool();
  const int64_t places =
      is_transposed ? product(input.slice(2)) : count_places(inputs, /*dilation=*/inputs[5]);
  return 2 * input[0] * places * product(sizes(inputs, 1));
}

/// Both products of attention: query [b, h, s, e] by key [b, h, t, e], and that by value
/// [b, h, t, v].
int64_t count_attention(Inputs inputs) {
  const at::IntArrayRef query = sizes(inputs, 0), key = sizes(inputs, 1), value = sizes(inputs, 2);
  const int64_t scores = query[0] * query[1] * query[2] * key[2];
  return 2 * scores * (query[3] + value[3]);
}

/// Both products of attention, of (qkv [n, l, 3 · w], …).
int64_t count_self_attention(Inputs inputs) {
  const at::IntArrayRef qkv = sizes(inputs, 0);
  return 4 * qkv[0] * qkv[1] * qkv[1] * (qkv[2] / 3);
}

/// The scores again, and the gradients of both products' factors; (gradient, qkv, …).
int64_t count_self_attention_backward(Inputs inputs) {
  const at::IntArrayRef qkv = sizes(inputs, 1);
  return 10 * qkv[0] * qkv[1] * qkv[1] * (qkv[2] / 3);
}

/// linear_backward(gradient [n, o], input [n, i], weight [o, i], output_mask)
int64_t count_linear_backward(Inputs inputs) {
  return wanted(inputs[3], 2) * 2 * sizes(inputs, 0)[0] * product(sizes(inputs, 2));
}

/// convolution_backward(gradient [N, O, …], input, weight, bias_sizes, stride, padding, dilation,
/// transposed, output_padding, groups, output_mask): a product for each gradient of a factor.
int64_t count_convolution_backward(Inputs inputs) {
  const bool is_transposed = inputs[7].toBool();
  const at::IntArrayRef places = sizes(inputs, is_transposed ? 1 : 0);
  return 2 * wanted(inputs[10], 2) * places[0] * product(places.slice(2)) *
         product(sizes(inputs, 2));
}

/// depthwise_convolution(input [N, C, H, W], weight, bias, stride, padding)
int64_t count_depthwise(Inputs inputs) {
  static const c10::IValue kNone = c10::List<int64_t>({1});
  return 2 * sizes(inputs, 0)[0] * count_places(inputs, kNone) * product(sizes(inputs, 1));
}

/// depthwise_convolution_backward(gradient [N, C, OH, OW], input, weight, stride, padding, wanted)
int64_t count_depthwise_backward(Inputs inputs) {
  return wanted(inputs[5], 2) * 2 * product(sizes(inputs, 0)) * product(sizes(inputs, 2).slice(2));
}

/// implicit_gemm(input [N, C, H, W], weight, steps: a stride, a padding and a dilation each side)
int64_t count_implicit_gemm(Inputs inputs) {
  const at::IntArrayRef input = sizes(inputs, 0), weight = sizes(inputs, 1);
  const std::vector<int64_t> steps = inputs[2].toIntVector();
  int64_t places = input[0];
  for (size_t side = 0; side < 2; ++side) {
    const int64_t reach = steps.at(4 + side) * (weight[2 + side] - 1) + 1;
    places *= (input[2 + side] + 2 * steps.at(2 + side) - reach) / steps.at(side) + 1;
  }
  return 2 * places * product(weight);
}

/// Of (gradient [N, O, OH, OW], …), with the weight's index: one product.
template <size_t weight>
int64_t count_implicit_gemm_gradient(Inputs inputs) {
  return 2 * product(sizes(inputs, 0)) * product(sizes(inputs, weight).slice(1));
}

/// The scores again, and the gradients of both products' factors; (gradient, query, key, value, …).
int64_t count_attention_backward(Inputs inputs) {
  const at::IntArrayRef query = sizes(inputs, 1), key = sizes(inputs, 2), value = sizes(inputs, 3);
  const int64_t scores = query[0] * query[1] * query[2] * key[2];
  return 2 * scores * (3 * query[3] + 2 * value[3]);
}

/// Operators that run products forward and call no other one of these.
const std::map<std::string_view, Count>& counts() {
  static const std::map<std::string_view, Count> all = {
      {"aten::mm", count_mm<0>},
      {"aten::addmm", count_mm<1>},
      {"aten::bmm", count_bmm<0>},
      {"aten::baddbmm", count_bmm<1>},
      {"aten::convolution", count_convolution},
      {"brim::block_linear", count_linear},
      {"brim::implicit_gemm", count_implicit_gemm},
      {"brim::depthwise_convolution", count_depthwise},
      {"brim::linear_cross_entropy", count_linear_cross_entropy},
      {"brim::self_attention", count_self_attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", count_attention},
      {"aten::_scaled_dot_product_flash_attention", count_attention},
      {"aten::_scaled_dot_product_efficient_attention", count_attention},
      {"aten::_scaled_dot_product_cudnn_attention", count_attention},
  };
  return all;
}

const std::map<std::string_view, Count>& backward_counts() {
  static const std::map<std::string_view, Count> all = {
      {"aten::convolution_backward", count_convolution_backward},
      {"brim::block_linear_backward", count_linear_backward},
      {"brim::weight_gradient", count_mm<0>},
      {"brim::implicit_gemm_of_input", count_implicit_gemm_gradient<1>},
      {"brim::implicit_gemm_of_weight", count_implicit_gemm_gradient<2>},
      {"brim::depthwise_convolution_backward", count_depthwise_backward},
      {"brim::self_attention_backward", count_self_attention_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", count_attention_backward},
      {"aten::_scaled_dot_product_flash_attention_backward", count_attention_backward},
      {"aten::_scaled_dot_product_efficient_attention_backward", count_attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention_backward", count_attention_backward},
  };
  return all;
}

/// RecordFunction's callbacks carry no state: the counts of this thread's counter.
thread_local std::map<std::string, int64_t>* current = nullptr;
thread_local int64_t call_depth = 0;
thread_local int64_t outer_calls = 0;

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
  if (call_depth++ == 0) ++outer_calls;
  const auto found = counts().find(call.name());
  if (found == counts().end() || current == nullptr) return nullptr;
  const std::string_view name = found->first;
  (*current)[std::string(name.substr(name.find("::") + 2))] += found->second(call.inputs());
  return nullptr;
}

void on_end(const at::RecordFunction& /*call*/, at::ObserverContext* /*none*/) { --call_depth; }

}  // namespace

ProductFlops product_flops(std::string_view name) {
  for (const auto* all : {&counts(), &backward_counts()}) {
    if (const auto found = all->find(name); found != all->end()) return found->second;
  }
  return nullptr;
}

class FlopCounter::Installed {
 public:
  Installed() {
    if (current != nullptr) throw Error(Exit::kBug, "one FlopCounter runs in another");
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator, &on_end)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
    current = &by_operator;
    call_depth = outer_calls = 0;
  }
  ~Installed() {
    current = nullptr;
    at::removeCallback(handle_);
  }
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;

  std::map<std::string, int64_t> by_operator;

 private:
  at::CallbackHandle handle_;
};

FlopCounter::FlopCounter() : installed_(std::make_unique<Installed>()) {}
FlopCounter::~FlopCounter() = default;

const std::map<std::string, int64_t>& FlopCounter::by_operator() const {
  return installed_->by_operator;
}

int64_t FlopCounter::operators() const { return outer_calls; }

int64_t FlopCounter::total() const {
  int64_t sum = 0;
  for (const auto& [name, flops] : by_operator()) sum += flops;
  return sum;
}

}  // namespace brim::nn
