// The GPU's fused batch norm against the CPU's.
#include "framework/nn/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "tests/cuda/gpu.h"

namespace brim::cuda {
namespace {

struct Pass {
  at::Tensor y, x_gradient, residual_gradient, weight_gradient, bias_gradient;
  at::Tensor running_mean, running_var;
  std::vector<at::Tensor> all() const {
    return {y,           x_gradient,       weight_gradient, bias_gradient, running_mean,
            running_var, residual_gradient};
  }
};

/// In training; with a residual and ReLU, with ReLU, or plain.
Pass pass(c10::Device device, at::Tensor x, at::Tensor residual, const at::Tensor& gradient,
          bool has_residual, bool relu) {
  at::manual_seed(5);
  nn::BatchNorm2d norm(x.size(1));
  {
    const at::NoGradGuard no_grad;
    norm->weight.uniform_(-1.5, 1.5);
    norm->bias.uniform_(-0.5, 0.5);
  }
  norm->to(device, x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  nn::use_fused(*norm, nn::Fused::kAlways);
  const auto leaf = [&](const at::Tensor& t) {
    return t.detach().clone().to(device).requires_grad_();  // to() alone may be the same tensor
  };
  x = leaf(x);
  residual = leaf(residual);
  const at::Tensor y = has_residual ? norm->forward_add_relu(x, residual)
                       : relu       ? norm->forward_relu(x)
                                    : norm->forward(x);
  EXPECT_NE(y.grad_fn()->name().find("FusedBatchNorm"), std::string::npos);
  y.backward(gradient.to(device));
  return {y.detach(),          x.grad(),          has_residual ? residual.grad() : at::zeros({1}),
          norm->weight.grad(), norm->bias.grad(), norm->running_mean,
          norm->running_var};
}

at::Tensor images(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::kDouble).to(type).contiguous(at::MemoryFormat::ChannelsLast);
}

void expect_as_on_cpu(at::IntArrayRef sizes, at::ScalarType type, bool has_residual, bool relu) {
  at::manual_seed(11);
  const at::Tensor x = images(sizes, type), r = images(sizes, type), g = images(sizes, type);
  // float16 is the GPU's alone: float32 on the CPU is its reference.
  const auto reference = [&](const at::Tensor& t) {
    return type == at::kHalf ? t.to(at::kFloat) : t;
  };
  const auto expected =
      pass(at::kCPU, reference(x), reference(r), reference(g), has_residual, relu).all();
  const auto found = pass(at::kCUDA, x, r, g, has_residual, relu).all();
  const double tolerance = type == at::kDouble ? 1e-9 : type == at::kFloat ? 2e-5 : 4e-3;
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor ours = found[i].cpu().to(at::kDouble), theirs = expected[i].to(at::kDouble);
    EXPECT_LE((ours - theirs).norm().item<double>(),
              tolerance * (theirs.norm().item<double>() + 1e-6))
        << i;
  }
}

TEST_F(Gpu, NormalisesAsTheCpuDoes) {
  const std::vector<std::vector<int64_t>> sizes = {
      {3, 3, 5, 7},   {8, 17, 1, 1},  {2, 64, 9, 11},  {2, 300, 7, 6},
      {70, 16, 1, 1}, {4, 8, 40, 41}, {5, 2048, 7, 7}, {16, 64, 112, 112}};
  for (const auto& size : sizes) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(size) << " " << type);
      expect_as_on_cpu(size, type, /*has_residual=*/false, /*relu=*/false);
      expect_as_on_cpu(size, type, /*has_residual=*/false, /*relu=*/true);
      expect_as_on_cpu(size, type, /*has_residual=*/true, /*relu=*/true);
    }
  }
}

TEST_F(Gpu, NormalisesWithTheSameBitsEachTime) {
  at::manual_seed(3);
  const at::Tensor x = images({8, 48, 33, 35}, at::kBFloat16);
  const auto first = pass(at::kCUDA, x, x, x, true, true).all();
  const auto second = pass(at::kCUDA, x, x, x, true, true).all();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_F(Gpu, NormalisesInEvaluationAsTheCpuDoes) {
  at::manual_seed(3);
  const at::NoGradGuard no_grad;
  const at::Tensor x = images({4, 48, 9, 9}, at::kFloat);
  nn::BatchNorm2d norm(48);
  nn::use_fused(*norm, nn::Fused::kAlways);
  norm->running_mean.uniform_(-1, 1);
  norm->running_var.uniform_(0.5, 2);
  norm->eval();
  const at::Tensor expected = norm->forward_add_relu(x, x);
  norm->to(at::kCUDA);
  EXPECT_TRUE(at::allclose(norm->forward_add_relu(x.cuda(), x.cuda()).cpu(), expected, 1e-5, 1e-5));
}

}  // namespace
}  // namespace brim::cuda
