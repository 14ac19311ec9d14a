// A profile's sums: what bounds an operator, and that operators and the rest are the wall time.
#include "framework/experiment/profile/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace brim::experiment {
namespace {

using telemetry::OperatorCalls;
using telemetry::StepProfile;

const telemetry::Peaks kPeaks = {
    .flops_per_s = {{"fp32", 1e9}}, .bytes_per_s = 1e9, .call_s = 1e-3};

OperatorCalls calls(double flops, double bytes, double count = 1) {
  return {.name = "aten::mm",
          .module = "fc",
          .phase = Phase::kForward,
          .inputs = {{"fp32", {2, 2}}},
          .calls = count,
          .self_s = 2.0,
          .flops = flops,
          .bytes = bytes};
}

TEST(Roofline, IsTheLargestOfThreeTimes) {
  EXPECT_EQ(work_of(calls(1e9, 1e8), kPeaks).bound(), Bound::kCompute);
  EXPECT_EQ(work_of(calls(1e8, 1e9), kPeaks).bound(), Bound::kMemory);
  EXPECT_EQ(work_of(calls(1e5, 1e5), kPeaks).bound(), Bound::kLaunch);
  EXPECT_EQ(work_of(calls(1e8, 1e8, 1000), kPeaks).bound(), Bound::kLaunch);
  EXPECT_EQ(work_of(calls(0, 0), kPeaks).bound(), Bound::kUnknown);
  EXPECT_DOUBLE_EQ(work_of(calls(1e9, 1e8), kPeaks).efficiency(), 0.5);
  EXPECT_DOUBLE_EQ(work_of(calls(1e8, 5e8), kPeaks).efficiency(), 0.25);
}

TEST(Roofline, HasNoLimitOfAFormatWithoutAPeak) {
  OperatorCalls other = calls(1e12, 1e8);
  other.inputs[0].dtype = "bf16";
  EXPECT_DOUBLE_EQ(work_of(other, kPeaks).compute_s, 0);
  EXPECT_EQ(work_of(other, kPeaks).bound(), Bound::kMemory);
}

TEST(Roofline, AProductIsOfItsFirstFactorsFormat) {
  const telemetry::Peaks peaks = {.flops_per_s = {{"fp32", 1e9}, {"bf16", 4e9}}};
  OperatorCalls product = calls(1e9, 1e8);
  product.name = "brim::block_linear";
  product.inputs = {{"bf16", {8, 2}}, {"fp32", {4, 2}}, {"fp32", {4}}};
  EXPECT_DOUBLE_EQ(work_of(product, peaks).compute_s, 0.25);
  product.name = "brim::linear_cross_entropy";
  product.inputs = {{"bf16", {8, 2}}, {"fp32", {4, 2}}, {"int64", {8}}};
  EXPECT_DOUBLE_EQ(work_of(product, peaks).compute_s, 0.25);
  product.name = "brim::depthwise_convolution";
  product.inputs = {{"bf16", {2, 4, 8, 8}}, {"fp32", {4, 1, 3, 3}}};
  EXPECT_DOUBLE_EQ(work_of(product, peaks).compute_s, 1);
  product.inputs = {};
  EXPECT_DOUBLE_EQ(work_of(product, peaks).compute_s, 0);
}

StepProfile step() {
  StepProfile profile{.device = "cpu", .wall_s = 10};
  profile.phase_s[static_cast<size_t>(Phase::kForward)] = 5;
  profile.phase_s[static_cast<size_t>(Phase::kBackward)] = 2;
  profile.phase_s[static_cast<size_t>(Phase::kDataWait)] = 3;
  profile.profiler_s[static_cast<size_t>(Phase::kForward)] = 0.5;
  profile.operators = {calls(1, 1), calls(2, 2)};
  profile.operators[1].phase = Phase::kBackward;
  profile.operators[1].self_s = 1.5;
  profile.peaks = kPeaks;
  return profile;
}

double sum(const std::vector<Rest>& rest) {
  double seconds = 0;
  for (const Rest& part : rest) seconds += part.seconds;
  return seconds;
}

TEST(Roofline, OperatorsAndTheRestAreTheWholeStep) {
  const StepProfile profile = step();
  const std::vector<Rest> rest = rest_of(profile);
  EXPECT_DOUBLE_EQ(sum(rest) + 3.5, profile.wall_s);
  EXPECT_EQ(rest[0].name, "data_wait");
  EXPECT_EQ(rest[1].name, "forward, between operators");
  EXPECT_DOUBLE_EQ(rest[1].seconds, 2.5);
  StepProfile on_gpu = profile;
  on_gpu.device = "cuda:0";  // the host's phases are not the device's
  ASSERT_EQ(rest_of(on_gpu).size(), 1U);
  EXPECT_DOUBLE_EQ(rest_of(on_gpu)[0].seconds, 6.5);
}

TEST(Roofline, RowsAreSumsByOperatorAndByModule) {
  StepProfile profile = step();
  profile.operators.push_back(calls(4, 4));
  const std::vector<WorkRow> operators = by_operator(profile);
  ASSERT_EQ(operators.size(), 2U);
  EXPECT_EQ(operators[0].phase, "forward");
  EXPECT_DOUBLE_EQ(operators[0].work.flops, 5);
  const std::vector<WorkRow> modules = by_module(profile);
  ASSERT_EQ(modules.size(), 1U);
  EXPECT_DOUBLE_EQ(modules[0].forward_s, 4);
  EXPECT_DOUBLE_EQ(modules[0].backward_s, 1.5);
  EXPECT_DOUBLE_EQ(modules[0].work.calls, 3);
}

}  // namespace
}  // namespace brim::experiment
