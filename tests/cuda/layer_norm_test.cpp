// The GPU's fused layer norm, and bias with GELU, against the CPU's.
#include "framework/nn/fused/layer_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "framework/nn/fused/gelu.h"
#include "tests/cuda/gpu.h"

namespace brim::cuda {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor leaf(const at::Tensor& value, c10::Device device) {
  return value.detach().clone().to(device).requires_grad_();
}

void expect_close(const Tensors& found, const Tensors& expected, double tolerance) {
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor ours = found[i].detach().cpu().to(at::kDouble);
    const at::Tensor theirs = expected[i].detach().to(at::kDouble);
    EXPECT_LE((ours - theirs).norm().item<double>(),
              tolerance * (theirs.norm().item<double>() + 1e-6))
        << i;
  }
}

double tolerance_of(at::ScalarType type) {
  return type == at::kDouble ? 1e-9 : type == at::kFloat ? 2e-5 : 8e-3;
}

Tensors layer_norm_pass(c10::Device device, const Tensors& given, bool has_branch) {
  const at::Tensor x = leaf(given[0], device);
  const at::Tensor branch = has_branch ? leaf(given[1], device) : at::Tensor();
  const nn::LayerNormState state = {leaf(given[2], device), leaf(given[3], device), 1e-5};
  const nn::AddedNorm y = nn::fused_layer_norm(x, branch, state, given[4].scalar_type());
  if (!has_branch) {
    y.norm.backward(given[4].to(device));
    return {y.norm, x.grad(), state.weight.grad(), state.bias.grad()};
  }
  torch::autograd::backward({y.norm, y.sum}, {given[4].to(device), given[5].to(device)});
  return {y.norm, y.sum, x.grad(), branch.grad(), state.weight.grad(), state.bias.grad()};
}

TEST_F(Gpu, LayerNormIsTheCpus) {
  at::manual_seed(3);
  // A warp or a block a row, in packs and not.
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 7}, {70, 768}, {300, 33}, {9, 4096}, {5, 1031}}) {
    for (const auto& [x, norm] : {std::pair(at::kFloat, at::kFloat),
                                  {at::kDouble, at::kDouble},
                                  {at::kBFloat16, at::kBFloat16},
                                  {at::kFloat, at::kBFloat16}}) {
      for (const bool has_branch : {false, true}) {
        const auto values = [&](at::ScalarType type) { return at::randn(sizes).to(type); };
        const at::ScalarType wide = x == at::kDouble ? at::kDouble : at::kFloat;
        const auto vector = [&] { return at::randn({sizes[1]}).to(wide); };
        const Tensors given = {values(x), values(norm), vector(),
                               vector(),  values(norm), values(x)};
        expect_close(layer_norm_pass(at::kCUDA, given, has_branch),
                     layer_norm_pass(at::kCPU, given, has_branch), tolerance_of(norm));
      }
    }
  }
}

Tensors gelu_pass(c10::Device device, const Tensors& given, nn::Gelu form) {
  const at::Tensor x = leaf(given[0], device), bias = leaf(given[1], device);
  const at::Tensor y = nn::fused_bias_gelu(x, bias, form);
  y.backward(given[2].to(device));
  return {y, x.grad(), bias.grad()};
}

TEST_F(Gpu, BiasGeluIsTheCpus) {
  at::manual_seed(3);
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 7}, {700, 3072}, {300, 33}, {2000, 16}}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const nn::Gelu form : {nn::Gelu::kErf, nn::Gelu::kTanh}) {
        const Tensors given = {(at::randn(sizes) * 3).to(type),
                               at::randn({sizes[1]}).to(type == at::kDouble ? type : at::kFloat),
                               at::randn(sizes).to(type)};
        expect_close(gelu_pass(at::kCUDA, given, form), gelu_pass(at::kCPU, given, form),
                     tolerance_of(type));
      }
    }
  }
}

}  // namespace
}  // namespace brim::cuda
