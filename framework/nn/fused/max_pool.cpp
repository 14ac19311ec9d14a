#include "framework/nn/fused/max_pool.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "framework/nn/fused/operator.h"

namespace brim::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(brim, library) {
  library.def("max_pool(Tensor x, int kernel, int stride, int padding) -> (Tensor, Tensor)");
  library.def(
      "max_pool_backward(Tensor gradient, Tensor places, int height, int width, int kernel, "
      "int stride, int padding) -> Tensor");
}

using MaxPool = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t, int64_t, int64_t);
using MaxPoolBackward = at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t,
                                   int64_t, int64_t);

class FusedMaxPool : public Function<FusedMaxPool> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const PoolWindow& window) {
    const ForwardPass pass;
    static const auto operation = find_operator<MaxPool>("brim::max_pool");
    auto [y, places] = operation.call(x, window.kernel, window.stride, window.padding);
    context->save_for_backward({places});
    context->saved_data["sizes"] =
        std::vector<int64_t>{x.size(2), x.size(3), window.kernel, window.stride, window.padding};
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const BackwardPass pass("max pool");
    static const auto operation = find_operator<MaxPoolBackward>("brim::max_pool_backward");
    const auto sizes = context->saved_data["sizes"].toIntVector();
    return {operation.call(gradients[0].contiguous(at::MemoryFormat::ChannelsLast),
                           context->get_saved_variables()[0], sizes[0], sizes[1], sizes[2],
                           sizes[3], sizes[4]),
            {}};
  }
};

}  // namespace

bool has_fused_max_pool(const at::Tensor& x, const PoolWindow& window) {
  return x.is_cuda() && x.dim() == 4 && x.numel() > 0 && has_fused_kernels(x) &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast) && window.kernel <= 16 &&
         window.stride <= window.kernel && x.size(2) + 2 * window.padding >= window.kernel &&
         x.size(3) + 2 * window.padding >= window.kernel;
}

at::Tensor fused_max_pool(const at::Tensor& x, const PoolWindow& window) {
  return FusedMaxPool::apply(x, window);
}

}  // namespace brim::nn
