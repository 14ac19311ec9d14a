// What the tests of fused operations measure them by.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/nn/fused.h"
#include "framework/nn/fused/loops/isa.h"
#include "framework/nn/fused/upcast.h"

namespace brim::nn {

/// While it lives, the CPU multiplies bfloat16, or not.
class Bf16Products {
 public:
  explicit Bf16Products(bool are_there) : before_(assume_bf16_faster(are_there)) {}
  ~Bf16Products() { assume_bf16_faster(before_); }
  Bf16Products(const Bf16Products&) = delete;
  Bf16Products& operator=(const Bf16Products&) = delete;

 private:
  bool before_;
};

/// What the loops are compiled for and this CPU has.
inline std::vector<loops::Isa> available_isas() {
  std::vector<loops::Isa> isas;
  for (const loops::Isa isa : loops::kAllIsas) {
    if (loops::is_available(isa)) isas.push_back(isa);
  }
  return isas;
}

/// layer(x), under autocast to bfloat16 or not, in that format, by the operator of that name or
/// not.
template <class Layer>
at::Tensor forward_of(Layer& layer, const at::Tensor& x, bool fused, bool autocast,
                      const std::string& name, bool is_by_it) {
  use_fused(*layer, fused ? Fused::kAlways : Fused::kNever);
  at::Tensor y;
  {
    const amp::Autocast scope(
        c10::kCPU, {.compute = autocast ? at::kBFloat16 : at::kFloat, .autocast = autocast});
    y = layer->forward(x);
  }
  EXPECT_EQ(y.grad_fn()->name().find(name) != std::string::npos, is_by_it);
  EXPECT_EQ(y.scalar_type(), autocast ? at::kBFloat16 : at::kFloat);
  return y;
}

/// ‖found - expected‖ / ‖expected‖, as float64.
inline double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor exact = expected.detach().to(at::kDouble);
  const double size = exact.norm().item<double>();
  return (found.detach().to(at::kDouble) - exact).norm().item<double>() / std::max(size, 1e-30);
}

/// d(Σ y · g)/dx by central differences, element by element. x is float64, has no gaps in memory,
/// and is what y() reads.
inline at::Tensor numerical_gradient(const std::function<at::Tensor()>& y, const at::Tensor& g,
                                     const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  at::Tensor gradient = at::zeros_like(x);
  auto* values = x.mutable_data_ptr<double>();
  auto* slopes = gradient.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double old = values[i];
    values[i] = old + kStep;
    const double above = (y() * g).sum().item<double>();
    values[i] = old - kStep;
    const double below = (y() * g).sum().item<double>();
    values[i] = old;
    slopes[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

}  // namespace brim::nn
