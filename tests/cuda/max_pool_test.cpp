// The GPU's fused max pool against LibTorch's: values and gradients.
#include "framework/nn/fused/max_pool.h"

#include <ATen/ATen.h>

#include "tests/cuda/gpu.h"

namespace brim::cuda {
namespace {

TEST_F(Gpu, MaxPoolIsLibTorchs) {
  at::manual_seed(5);
  const auto format = at::MemoryFormat::ChannelsLast;
  for (const int64_t channels : {64, 3}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const nn::PoolWindow window : {nn::PoolWindow{3, 2, 1}, nn::PoolWindow{2, 2, 0}}) {
        const at::Tensor values =
            at::randn({5, channels, 31, 28}).to(type).cuda().contiguous(format);
        ASSERT_TRUE(nn::has_fused_max_pool(values, window));
        const at::Tensor x = values.clone().requires_grad_(),
                         plain = values.clone().requires_grad_();
        const at::Tensor y = nn::fused_max_pool(x, window);
        const at::Tensor expected =
            at::max_pool2d(plain, window.kernel, window.stride, window.padding);
        EXPECT_TRUE(y.equal(expected));
        const at::Tensor gradient = at::randn_like(y);
        y.backward(gradient);
        expected.backward(gradient);
        const double tolerance = type == at::kFloat ? 1e-6 : 1e-2;
        EXPECT_LE((x.grad() - plain.grad()).to(at::kFloat).norm().item<double>(),
                  tolerance * plain.grad().to(at::kFloat).norm().item<double>());
      }
    }
  }
}

}  // namespace
}  // namespace brim::cuda
