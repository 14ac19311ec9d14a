// Fused batch norm against LibTorch's: values, gradients and running statistics.
#include "framework/nn/fused/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>

#include "framework/base/error.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/block.h"
#include "framework/nn/fused/loops/batch_norm.h"
#include "tests/nn/fused/check.h"

namespace brim::nn {
namespace {

enum class NormForm { kPlain, kRelu, kAddRelu };
constexpr NormForm kNormForms[] = {NormForm::kPlain, NormForm::kRelu, NormForm::kAddRelu};

at::Tensor apply(BatchNorm2d& norm, NormForm form, const at::Tensor& x,
                 const at::Tensor& residual) {
  if (form == NormForm::kPlain) return norm->forward(x);
  if (form == NormForm::kRelu) return norm->forward_relu(x);
  return norm->forward_add_relu(x, residual);
}

BatchNorm2d make_norm(int64_t channels, at::ScalarType type, bool fused) {
  at::manual_seed(5);
  BatchNorm2d norm(channels);
  const at::NoGradGuard no_grad;
  norm->weight.uniform_(-1.5, 1.5);
  norm->bias.uniform_(-0.5, 0.5);
  norm->running_mean.uniform_(-1, 1);
  norm->running_var.uniform_(0.5, 2);
  norm->to(type);
  use_fused(*norm, fused ? Fused::kAlways : Fused::kNever);
  return norm;
}

at::Tensor images(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::kDouble).to(type).contiguous(at::MemoryFormat::ChannelsLast);
}

bool is_fused(const at::Tensor& y) {
  return y.grad_fn() != nullptr && y.grad_fn()->name().find("FusedBatchNorm") != std::string::npos;
}

/// What one training pass makes, everything as float64.
struct NormPass {
  at::Tensor y, x_gradient, residual_gradient, weight_gradient, bias_gradient;
  at::Tensor running_mean, running_var;
  int64_t batches = 0;
  std::vector<std::pair<const char*, at::Tensor>> all() const {
    std::vector<std::pair<const char*, at::Tensor>> tensors = {{"y", y},
                                                               {"x gradient", x_gradient},
                                                               {"weight gradient", weight_gradient},
                                                               {"bias gradient", bias_gradient},
                                                               {"running mean", running_mean},
                                                               {"running var", running_var}};
    if (residual_gradient.defined()) tensors.emplace_back("residual gradient", residual_gradient);
    return tensors;
  }
};

NormPass pass(bool fused, NormForm form, const at::Tensor& x, const at::Tensor& residual,
              const at::Tensor& gradient, at::ScalarType parameters) {
  BatchNorm2d norm = make_norm(x.size(1), parameters, fused);
  const at::Tensor input = x.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
  const at::Tensor added = residual.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
  const at::Tensor y = apply(norm, form, input, added);
  EXPECT_EQ(is_fused(y), fused);
  EXPECT_EQ(y.scalar_type(), x.scalar_type());
  y.backward(gradient);
  const auto wide = [](const at::Tensor& t) {
    return t.defined() ? t.detach().to(at::kDouble) : at::Tensor();
  };
  return {.y = wide(y),
          .x_gradient = wide(input.grad()),
          .residual_gradient = form == NormForm::kAddRelu ? wide(added.grad()) : at::Tensor(),
          .weight_gradient = wide(norm->weight.grad()),
          .bias_gradient = wide(norm->bias.grad()),
          .running_mean = wide(norm->running_mean),
          .running_var = wide(norm->running_var),
          .batches = norm->num_batches_tracked.item<int64_t>()};
}

void expect_close(const NormPass& found, const NormPass& expected, double tolerance) {
  const auto theirs = expected.all();
  const auto ours = found.all();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].second.sizes(), theirs[i].second.sizes());
    EXPECT_LE(relative_error(ours[i].second, theirs[i].second), tolerance) << ours[i].first;
  }
  EXPECT_EQ(found.batches, expected.batches);
}

// Odd numbers of channels, fewer rows than a vector has lanes, more rows than are summed at once,
// more channels than a tile has, one pixel.
const std::vector<std::vector<int64_t>> kSizes = {{2, 1, 1, 1},   {3, 3, 5, 7},  {8, 17, 1, 1},
                                                  {2, 64, 9, 11}, {5, 33, 3, 3}, {2, 300, 7, 6},
                                                  {70, 16, 1, 1}, {4, 8, 40, 41}};

void for_each_case(const std::function<void(NormForm, at::IntArrayRef)>& f) {
  for (const auto& sizes : kSizes) {
    for (const NormForm form : kNormForms) {
      SCOPED_TRACE(testing::Message()
                   << at::IntArrayRef(sizes) << " form " << static_cast<int>(form));
      at::manual_seed(11);
      f(form, sizes);
    }
  }
}

TEST(FusedBatchNorm, IsLibTorchsInFloat64) {
  for_each_case([](NormForm form, at::IntArrayRef sizes) {
    const at::Tensor x = images(sizes, at::kDouble), r = images(sizes, at::kDouble);
    const at::Tensor g = images(sizes, at::kDouble);
    expect_close(pass(true, form, x, r, g, at::kDouble), pass(false, form, x, r, g, at::kDouble),
                 1e-9);
  });
}

TEST(FusedBatchNorm, IsLibTorchsInFloat32) {
  for_each_case([](NormForm form, at::IntArrayRef sizes) {
    const at::Tensor x = images(sizes, at::kFloat), r = images(sizes, at::kFloat);
    const at::Tensor g = images(sizes, at::kFloat);
    expect_close(pass(true, form, x, r, g, at::kFloat), pass(false, form, x, r, g, at::kFloat),
                 sizes[0] * sizes[2] * sizes[3] == 2 ? 1e-2 : 2e-5);  // gradients cancel
  });
}

/// Half a unit in the last place of bf16 is 2^-9 of a value; ReLU'd values near 0 may differ in
/// sign before they are rounded, which gradients see.
TEST(FusedBatchNorm, IsExactToBf16sRounding) {
  for_each_case([](NormForm form, at::IntArrayRef sizes) {
    const at::Tensor x = images(sizes, at::kBFloat16), r = images(sizes, at::kBFloat16);
    const at::Tensor g = images(sizes, at::kBFloat16);
    if (sizes[0] * sizes[2] * sizes[3] == 2) return;  // gradients cancel to nothing
    const NormPass found = pass(true, form, x, r, g, at::kFloat);
    const NormPass exact =
        pass(false, form, x.to(at::kDouble), r.to(at::kDouble), g.to(at::kDouble), at::kDouble);
    expect_close(found, exact, 3e-3);
  });
}

TEST(FusedBatchNorm, GradientIsThatOfDifferences) {
  for (const NormForm form : kNormForms) {
    at::manual_seed(23);
    const at::Tensor x = images({2, 3, 2, 2}, at::kDouble).requires_grad_();
    const at::Tensor residual = images({2, 3, 2, 2}, at::kDouble).requires_grad_();
    const at::Tensor g = images({2, 3, 2, 2}, at::kDouble);
    BatchNorm2d norm = make_norm(3, at::kDouble, true);
    const auto y = [&] { return apply(norm, form, x, residual); };
    y().backward(g);
    EXPECT_LE(relative_error(x.grad(), numerical_gradient(y, g, x.detach())), 1e-7);
    if (form != NormForm::kAddRelu) continue;
    EXPECT_LE(relative_error(residual.grad(), numerical_gradient(y, g, residual.detach())), 1e-7);
  }
}

TEST(FusedBatchNorm, KeepsDigitsWhereTheMeanIsLarge) {
  at::manual_seed(3);
  for (const double mean : {-3e3, 1e4}) {
    const at::Tensor x = (images({8, 5, 12, 12}, at::kDouble) * 0.5 + mean).to(at::kFloat);
    const at::Tensor g = images({8, 5, 12, 12}, at::kFloat);
    const NormPass found = pass(true, NormForm::kRelu, x, x, g, at::kFloat);
    const NormPass exact = pass(false, NormForm::kRelu, x.to(at::kDouble), x.to(at::kDouble),
                                g.to(at::kDouble), at::kDouble);
    EXPECT_LE(relative_error(found.running_var, exact.running_var), 1e-6);
    EXPECT_LE(relative_error(found.running_mean, exact.running_mean), 1e-6);
    EXPECT_LE(relative_error(found.y, exact.y), 2e-3);  // the mean is rounded to float32
  }
}

TEST(FusedBatchNorm, AConstantChannelIsItsBias) {
  const at::Tensor x = at::full({3, 4, 5, 7}, 0.1F).contiguous(at::MemoryFormat::ChannelsLast);
  const NormPass found =
      pass(true, NormForm::kPlain, x, x, images({3, 4, 5, 7}, at::kFloat), at::kFloat);
  const BatchNorm2d norm = make_norm(4, at::kFloat, true);
  EXPECT_TRUE(at::equal(found.y,
                        norm->bias.detach().to(at::kDouble).view({1, 4, 1, 1}).expand_as(found.y)));
  EXPECT_TRUE(found.x_gradient.isfinite().all().item<bool>());
  EXPECT_TRUE(at::allclose(found.running_var, norm->running_var.to(at::kDouble) * 0.9));
}

TEST(FusedBatchNorm, ReluHidesNoNotANumber) {
  at::Tensor x = images({2, 3, 4, 4}, at::kFloat);
  x[1][2][0][0] = NAN;
  BatchNorm2d norm = make_norm(3, at::kFloat, true);
  const at::Tensor y = norm->forward_relu(x.requires_grad_());
  EXPECT_TRUE(y.select(1, 2).isnan().all().item<bool>());
  EXPECT_FALSE(y.slice(1, 0, 2).isnan().any().item<bool>());
  EXPECT_TRUE(norm->running_var[2].isnan().item<bool>());
}

TEST(FusedBatchNorm, TakesGradientsOfAnyLayout) {
  at::manual_seed(2);
  const at::Tensor x = images({2, 5, 4, 6}, at::kFloat), r = images({2, 5, 4, 6}, at::kFloat);
  const at::Tensor g = images({2, 5, 4, 6}, at::kFloat);
  const at::Tensor one = at::ones({1, 1, 1, 1});
  const NormPass expected = pass(true, NormForm::kAddRelu, x, r, g, at::kFloat);
  expect_close(pass(true, NormForm::kAddRelu, x, r, g.contiguous(), at::kFloat), expected, 0);
  expect_close(pass(true, NormForm::kAddRelu, x, r, one.expand_as(g), at::kFloat),
               pass(true, NormForm::kAddRelu, x, r, at::ones_like(g), at::kFloat), 0);
}

TEST(FusedBatchNorm, AnyNumberOfThreadsGivesTheSameBits) {
  const int before = at::get_num_threads();
  at::manual_seed(2);
  const at::Tensor x = images({8, 16, 30, 30}, at::kBFloat16);
  at::set_num_threads(1);
  const NormPass one = pass(true, NormForm::kAddRelu, x, x, x, at::kFloat);
  at::set_num_threads(3);
  const NormPass three = pass(true, NormForm::kAddRelu, x, x, x, at::kFloat);
  at::set_num_threads(before);
  expect_close(three, one, 0);
}

/// As on two ranks that see the same samples: sums are twice this rank's.
TEST(FusedBatchNorm, OverRanksItIsTheUnfusedOne) {
  at::manual_seed(4);
  for (const NormForm form : kNormForms) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const at::Tensor values = images({4, 19, 5, 3}, type), added = images({4, 19, 5, 3}, type);
      const at::Tensor gradient = images({4, 19, 5, 3}, type);
      const at::ScalarType of_parameters = type == at::kDouble ? at::kDouble : at::kFloat;
      std::vector<at::Tensor> all[2];
      for (const bool fused : {false, true}) {
        BatchNorm2d norm = make_norm(19, of_parameters, fused);
        norm->synchronize([](const at::Tensor& sums) { sums.mul_(2); });
        const at::Tensor x = values.clone().requires_grad_(), r = added.clone().requires_grad_();
        const at::Tensor y = apply(norm, form, x, r);
        EXPECT_EQ(y.grad_fn()->name().find("FusedSync") != std::string::npos, fused);
        y.backward(gradient);
        all[fused] = {y,
                      x.grad(),
                      norm->weight.grad(),
                      norm->bias.grad(),
                      norm->running_mean,
                      norm->running_var};
        if (form == NormForm::kAddRelu) all[fused].push_back(r.grad());
      }
      for (size_t i = 0; i < all[0].size(); ++i) {
        EXPECT_LE(relative_error(all[1][i], all[0][i]), type == at::kDouble  ? 1e-12
                                                        : type == at::kFloat ? 1e-5
                                                                             : 2e-2)
            << i << " " << type;
      }
    }
  }
}

// y has two readers, of which the gradients reach the norm apart; or the second one's alone.
TEST(FusedBatchNorm, AnotherReadersGradientIsAdded) {
  at::manual_seed(3);
  for (const NormForm form : kNormForms) {
    for (const bool has_first : {true, false}) {
      const at::Tensor values = images({4, 19, 5, 3}, at::kDouble);
      const at::Tensor factors = images({4, 19, 5, 3}, at::kDouble);
      std::vector<at::Tensor> gradients[2];
      for (const bool is_apart : {false, true}) {
        BatchNorm2d norm = make_norm(19, at::kDouble, /*fused=*/true);
        const at::Tensor x = values.clone().requires_grad_(), r = values.clone().requires_grad_();
        const at::Tensor y = apply(norm, form, x, r);
        const at::Tensor other = is_apart ? for_other_reader(y) : y;
        EXPECT_EQ(other.is_same(y), !is_apart);
        at::Tensor loss = (other * factors).sum() + other.square().sum();
        if (has_first) loss = loss + y.sin().sum();
        loss.backward();
        gradients[is_apart] = {x.grad(), norm->weight.grad(), norm->bias.grad()};
        if (form == NormForm::kAddRelu) gradients[is_apart].push_back(r.grad());
      }
      for (size_t i = 0; i < gradients[0].size(); ++i) {
        EXPECT_LE(relative_error(gradients[1][i], gradients[0][i]), 1e-12) << i;
      }
    }
  }
}

TEST(FusedBatchNorm, ItIsLeftToNoOtherOperator) {
  const at::Tensor x = images({2, 3, 4, 4}, at::kFloat).requires_grad_();
  const at::Tensor twice = x * 2;
  EXPECT_TRUE(for_other_reader(x).is_same(x));
  EXPECT_TRUE(for_other_reader(twice).is_same(twice));
  const at::NoGradGuard no_grad;
  BatchNorm2d norm = make_norm(3, at::kFloat, true);
  const at::Tensor y = norm->forward_relu(x);
  EXPECT_TRUE(for_other_reader(y).is_same(y));
}

TEST(FusedBatchNorm, EvaluationUsesTheRunningStatistics) {
  at::manual_seed(2);
  for (const NormForm form : kNormForms) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = images({3, 19, 4, 5}, type), r = images({3, 19, 4, 5}, type);
      at::Tensor y[2];
      for (const bool fused : {false, true}) {
        const at::NoGradGuard no_grad;
        BatchNorm2d norm = make_norm(19, at::kFloat, fused);
        norm->eval();
        y[fused] = apply(norm, form, x, r).to(at::kDouble);
        EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
      }
      EXPECT_LE(relative_error(y[1], y[0]), type == at::kFloat ? 1e-6 : 6e-3);
    }
  }
}

TEST(FusedBatchNorm, StandsBackWhereItDoesNotApply) {
  BatchNorm2d norm = make_norm(3, at::kFloat, true);
  const at::Tensor planes = at::randn({2, 3, 4, 4}).requires_grad_();
  EXPECT_FALSE(is_fused(norm->forward_relu(planes)));
  const at::Tensor x = images({2, 3, 4, 4}, at::kFloat).requires_grad_();
  EXPECT_TRUE(is_fused(norm->forward_relu(x)));
  EXPECT_FALSE(is_fused(norm->forward_add_relu(x, x.to(at::kDouble))));
  norm->eval();
  EXPECT_FALSE(is_fused(norm->forward_relu(x)));
  norm->train();
  norm->synchronize([](const at::Tensor&) {});
  EXPECT_FALSE(is_fused(norm->forward_relu(x)));
}

TEST(FusedBatchNorm, OneValueAChannelIsRefused) {
  BatchNorm2d norm = make_norm(3, at::kFloat, true);
  const at::Tensor x = images({1, 3, 1, 1}, at::kFloat);
  EXPECT_THROW(norm->forward_relu(x), Error);
  EXPECT_THROW(norm->forward_add_relu(x, x), Error);
}

TEST(FusedBatchNorm, EveryInstructionSetGivesTheSame) {
  at::manual_seed(2);
  const loops::Rows rows = {77, 37};
  const at::Tensor x = at::randn({77, 37}), shift = at::randn({37});
  std::vector<at::Tensor> sums;
  for (const loops::Isa isa : loops::kAllIsas) {
    if (!loops::is_available(isa)) continue;
    at::Tensor sum = at::zeros({2, 37}, at::kDouble);
    loops::batch_norm_table(isa).of_float.moments(
        rows, x.const_data_ptr<float>(), shift.const_data_ptr<float>(),
        sum.mutable_data_ptr<double>(), sum.mutable_data_ptr<double>() + 37);
    sums.push_back(sum);
  }
  const at::Tensor centred = (x - shift).to(at::kDouble);
  const at::Tensor exact = at::stack({centred.sum(0), centred.square().sum(0)});
  for (const at::Tensor& sum : sums) EXPECT_TRUE(at::allclose(sum, exact, 1e-5, 1e-5));
}

}  // namespace
}  // namespace brim::nn
