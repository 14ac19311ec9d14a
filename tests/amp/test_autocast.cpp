#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "framework/amp/autocast.h"

namespace brim::amp {
namespace {

using c10::ScalarType;
constexpr auto kCpu = c10::DeviceType::CPU;
constexpr auto kCuda = c10::DeviceType::CUDA;

Precision on_cpu(PrecisionMode mode) { return resolve(mode, kCpu, {}); }

ScalarType product_dtype() { return at::matmul(at::ones({4, 4}), at::ones({4, 4})).scalar_type(); }

TEST(Precision, AutoTakesWhatTheDeviceDoesWell) {
  const auto on_gpu = [](int capability) {
    return resolve(PrecisionMode::kAuto, kCuda, {.compute_capability = capability});
  };
  EXPECT_EQ(on_gpu(90).compute, ScalarType::BFloat16);
  EXPECT_EQ(on_gpu(80).compute, ScalarType::BFloat16);
  EXPECT_FALSE(on_gpu(80).scaler);
  EXPECT_EQ(on_gpu(75).compute, ScalarType::Half);
  EXPECT_TRUE(on_gpu(70).scaler);
  EXPECT_FALSE(on_gpu(61).autocast);

  EXPECT_EQ(resolve(PrecisionMode::kAuto, kCpu, {.cpu_bf16 = true}).compute, ScalarType::BFloat16);
  EXPECT_FALSE(resolve(PrecisionMode::kAuto, kCpu, {}).autocast);
}

TEST(Precision, OnlyFp16IsScaled) {
  for (const auto device : {kCpu, kCuda}) {
    EXPECT_TRUE(resolve(PrecisionMode::kFp16, device, {}).scaler);
    EXPECT_FALSE(resolve(PrecisionMode::kBf16, device, {}).scaler);
    EXPECT_FALSE(resolve(PrecisionMode::kFp32, device, {}).scaler);
  }
}

TEST(Precision, Tf32IsFloat32AndSaysWhereItHasNoEffect) {
  const auto ampere = resolve(PrecisionMode::kTf32, kCuda, {.compute_capability = 80});
  EXPECT_TRUE(ampere.tf32);
  EXPECT_FALSE(ampere.autocast);
  EXPECT_EQ(ampere.note, "");

  const auto turing = resolve(PrecisionMode::kTf32, kCuda, {.compute_capability = 75});
  EXPECT_FALSE(turing.tf32);
  EXPECT_NE(turing.note.find("no effect"), std::string::npos);

  const auto cpu = on_cpu(PrecisionMode::kTf32);
  EXPECT_FALSE(cpu.tf32);
  EXPECT_EQ(cpu.compute, ScalarType::Float);
  EXPECT_NE(cpu.note.find("no effect"), std::string::npos);
}

TEST(Precision, SaysWhereATypeIsEmulated) {
  EXPECT_NE(on_cpu(PrecisionMode::kFp16).note, "");
  EXPECT_EQ(resolve(PrecisionMode::kFp16, kCpu, {.cpu_fp16 = true}).note, "");
  EXPECT_NE(on_cpu(PrecisionMode::kBf16).note, "");
  EXPECT_EQ(resolve(PrecisionMode::kBf16, kCpu, {.cpu_bf16 = true}).note, "");
  EXPECT_NE(resolve(PrecisionMode::kBf16, kCuda, {.compute_capability = 75}).note, "");
}

TEST(Autocast, CastsInsideTheScopeOnly) {
  {
    const Autocast scope(kCpu, on_cpu(PrecisionMode::kBf16));
    EXPECT_EQ(product_dtype(), ScalarType::BFloat16);
    EXPECT_EQ(at::softmax(at::ones({4}), 0).scalar_type(), ScalarType::Float);
  }
  EXPECT_EQ(product_dtype(), ScalarType::Float);
}

TEST(Autocast, NestedScopesRestoreWhatTheyFound) {
  const Autocast outer(kCpu, on_cpu(PrecisionMode::kBf16));
  {
    const Autocast off(kCpu, on_cpu(PrecisionMode::kFp32));
    EXPECT_EQ(product_dtype(), ScalarType::Float);
    const Autocast inner(kCpu, on_cpu(PrecisionMode::kFp16));
    EXPECT_EQ(product_dtype(), ScalarType::Half);
  }
  EXPECT_EQ(product_dtype(), ScalarType::BFloat16);
}

TEST(Autocast, RestoresAfterAnException) {
  try {
    const Autocast scope(kCpu, on_cpu(PrecisionMode::kFp16));
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(kCpu));
  EXPECT_EQ(at::autocast::get_autocast_dtype(kCpu), ScalarType::BFloat16) << "LibTorch's default";
}

// Inside a scope the cast of a weight is kept; a step between two scopes must be seen.
TEST(Autocast, TheNextScopeSeesChangedWeights) {
  auto weight = at::ones({2, 2}).requires_grad_();
  const auto product = [&] {
    const Autocast scope(kCpu, on_cpu(PrecisionMode::kBf16));
    return at::matmul(at::ones({2, 2}), weight).sum().item<double>();
  };
  EXPECT_EQ(product(), 8.0);
  weight.data().fill_(3.0);
  EXPECT_EQ(product(), 24.0);
}

TEST(WeightCasts, AreSharedByPassesThatLearnEachOnItsOwn) {
  auto weight = at::ones({2, 2}).requires_grad_();
  at::Tensor cast;
  const auto pass = [&](double by) {
    at::Tensor product;
    {
      const Autocast scope(kCpu, on_cpu(PrecisionMode::kBf16));
      cast = at::autocast::cached_cast(ScalarType::BFloat16, weight, kCpu);
      product = at::matmul(at::full({2, 2}, by), weight);
    }
    product.sum().backward();
    return product.sum().item<double>();
  };
  {
    const WeightCasts casts;
    EXPECT_EQ(pass(1.0), 8.0);
    const at::Tensor first = cast;
    EXPECT_EQ(pass(2.0), 16.0);
    EXPECT_TRUE(cast.is_same(first));
  }
  EXPECT_EQ(weight.grad().sum().item<double>(), 4 * 2.0 + 4 * 4.0);
  weight.data().fill_(3.0);
  EXPECT_EQ(pass(1.0), 24.0) << "weights that a step has changed";
}

TEST(Autocast, GradientsOfAnFp16ConvolutionOnTheCpuAreFloat32) {
  auto weight = at::ones({2, 3, 3, 3}).requires_grad_();
  at::Tensor result;
  {
    const Autocast scope(kCpu, on_cpu(PrecisionMode::kFp16));
    result = at::conv2d(at::ones({1, 3, 8, 8}), weight);
  }
  EXPECT_EQ(result.scalar_type(), ScalarType::Half);
  result.to(at::kFloat).sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), ScalarType::Float);
  EXPECT_EQ(weight.grad().sum().item<double>(), 2 * 27 * 36.0);
}

}  // namespace
}  // namespace brim::amp
