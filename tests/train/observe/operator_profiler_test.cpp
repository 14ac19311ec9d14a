// What is counted of operators, by module and phase; and that Kineto, whose kernels' times go to
// them on a GPU, sees the same calls.
#include "framework/train/observe/operator_profiler.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace brim::train {
namespace {

using telemetry::OperatorCalls;

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 4));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

/// A step of 32 samples, with its phases.
void take(Net& net, Timeline& timeline) {
  timeline.enter(Phase::kForward);
  const at::Tensor x = at::ones({32, 8});
  const at::Tensor y = net.second(net.first(x).relu());
  const at::Tensor loss = at::cross_entropy_loss(y, at::zeros({32}, at::kLong));
  timeline.enter(Phase::kBackward);
  loss.backward();
  timeline.enter(Phase::kOther);
}

double flops(const std::vector<OperatorCalls>& all, const std::string& module, Phase phase) {
  double sum = 0;
  for (const OperatorCalls& calls : all) {
    if (calls.module == module && calls.phase == phase) sum += calls.flops;
  }
  return sum;
}

const OperatorCalls* find(const std::vector<OperatorCalls>& all, const std::string& name) {
  for (const OperatorCalls& calls : all) {
    if (calls.name == name) return &calls;
  }
  return nullptr;
}

TEST(OperatorProfiler, CountsByModuleAndPhase) {
  const auto net = std::make_shared<Net>();
  Timeline timeline;
  OperatorProfiler profiler(*net, timeline);
  for (int i = 0; i < 2; ++i) take(*net, timeline);
  const auto all = profiler.mean_of(2);
  EXPECT_EQ(flops(all, "first", Phase::kForward), 2 * 32 * 8 * 16);
  EXPECT_EQ(flops(all, "second", Phase::kForward), 2 * 32 * 16 * 4);
  EXPECT_EQ(flops(all, "first", Phase::kBackward), 2 * 32 * 8 * 16);  // the input needs none
  EXPECT_EQ(flops(all, "second", Phase::kBackward), 2 * 2 * 32 * 16 * 4);
  const OperatorCalls* relu = find(all, "aten::threshold_backward");
  ASSERT_NE(relu, nullptr);
  EXPECT_EQ(relu->module, "first");
  EXPECT_EQ(relu->calls, 1);
  EXPECT_EQ(relu->bytes, 3 * 32 * 16 * 4);  // reads two, writes one
  const OperatorCalls* loss = find(all, "aten::_log_softmax");
  ASSERT_NE(loss, nullptr);
  EXPECT_EQ(loss->module, "loss");
  EXPECT_EQ(loss->inputs.at(0).sizes, (std::vector<int64_t>{32, 4}));
  EXPECT_EQ(loss->inputs.at(0).dtype, "fp32");
}

TEST(OperatorProfiler, CountsViewsAndAllocationsAsNothingAndInPlaceTwice) {
  const auto net = std::make_shared<Net>();
  Timeline timeline;
  OperatorProfiler profiler(*net, timeline);
  at::Tensor x = at::zeros({64});
  x.view({8, 8}).t();
  x.add_(at::empty({64}));
  at::ones({1}).expand({1000}).clone();
  const auto all = profiler.mean_of(1);
  for (const char* name : {"aten::view", "aten::t", "aten::empty", "aten::expand"}) {
    EXPECT_EQ(find(all, name)->bytes, 0) << name;
  }
  EXPECT_EQ(find(all, "aten::add_")->bytes, 3 * 64 * 4);
  EXPECT_EQ(find(all, "aten::copy_")->bytes, 4 + 1000 * 4);  // an expanded number is one
  EXPECT_EQ(find(all, "aten::clone")->bytes, 0);             // copy_ has moved them
}

TEST(OperatorProfiler, HasKinetosTimesWhereBothSawTheSameCalls) {
  const auto net = std::make_shared<Net>();
  Timeline timeline;
  take(*net, timeline);
  DeviceTimes times(at::kCPU);
  OperatorProfiler profiler(*net, timeline, /*keeps_order=*/true);
  take(*net, timeline);
  DeviceCalls calls = times.take();
  ASSERT_EQ(calls.size(), 1U);
  std::vector<DeviceCall>& own = calls.begin()->second;
  int64_t addmms = 0;
  for (DeviceCall& call : own) {
    if (call.name == "aten::addmm") call.kernels_ns = 1000 * ++addmms;
  }
  ASSERT_EQ(addmms, 2);
  profiler.take_device_times(calls);
  const auto all = profiler.mean_of(1);
  for (const OperatorCalls& row : all) {
    const double expected = row.name != "aten::addmm" ? 0 : row.module == "first" ? 1e-6 : 2e-6;
    EXPECT_DOUBLE_EQ(row.self_s, expected) << row.name;
  }
  own.pop_back();
  EXPECT_THROW(profiler.take_device_times(calls), Error);
}

TEST(CallTimes, AreOfStepsThatMakeTheSameCalls) {
  const auto net = std::make_shared<Net>();
  Timeline timeline;
  take(*net, timeline);  // from now on gradients are added to those that are there
  OperatorProfiler profiler(*net, timeline, /*keeps_order=*/true);
  take(*net, timeline);
  profiler.stop();
  const auto counted = profiler.mean_of(1);
  const std::vector<ExpectedCall> order = profiler.order();
  CallTimes times(order);
  for (int i = 0; i < 3; ++i) {
    take(*net, timeline);
    EXPECT_TRUE(times.end_step());
  }
  at::zeros({1}).add_(1);  // calls that the step does not have
  EXPECT_FALSE(times.end_step());
  take(*net, timeline);
  at::zeros({1});  // one more
  EXPECT_FALSE(times.end_step());
  const StepTimes mean = times.mean();
  ASSERT_EQ(mean.self_ns.size(), order.size());
  profiler.take_times(mean);
  const auto timed = profiler.mean_of(1);
  ASSERT_EQ(timed.size(), counted.size());
  double self_s = 0;
  for (const OperatorCalls& calls : timed) self_s += calls.self_s;
  int64_t expected_ns = 0;
  for (const int64_t ns : mean.self_ns) expected_ns += ns;
  EXPECT_NEAR(self_s, 1e-9 * static_cast<double>(expected_ns), 1e-12);
  EXPECT_EQ(flops(timed, "first", Phase::kBackward), flops(counted, "first", Phase::kBackward));
}

TEST(OperatorProfiler, OnlyOneAtATime) {
  const auto net = std::make_shared<Net>();
  Timeline timeline;
  const OperatorProfiler profiler(*net, timeline);
  EXPECT_THROW(OperatorProfiler(*net, timeline), Error);
}

}  // namespace
}  // namespace brim::train
