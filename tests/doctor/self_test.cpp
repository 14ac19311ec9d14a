// The self-test of `trainer doctor`, trained for real on the CPU, and that it can fail.
#include "framework/doctor/self_test.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "framework/cli/register_all.h"
#include "framework/device/cuda_loader.h"

namespace brim::doctor {
namespace {

using amp::PrecisionMode;
using environment::Health;
using ::testing::HasSubstr;

class SelfTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    device::cuda();  // before LibTorch looks for GPUs, as in a program
    cli::register_all_components();
    memory_ = device::memory_of(c10::kCPU, {}).release();
  }
  static Trained train(PrecisionMode precision, int64_t seed = 1) {
    return train_tiny(c10::kCPU, *memory_, precision, seed);
  }
  static device::Memory* memory_;  // Brim's allocator is installed once
};

device::Memory* SelfTest::memory_ = nullptr;

TEST_F(SelfTest, AHealthyDevicePasses) {
  const Trained reference = train(PrecisionMode::kFp64);
  EXPECT_GT((reference.weights - reference.start).norm().item<double>(), 0.1);
  const environment::CheckResult finding = judge(reference, train(PrecisionMode::kFp32));
  EXPECT_EQ(finding.health, Health::kPass) << finding.found;
  EXPECT_EQ(finding.advice, "");
}

TEST_F(SelfTest, OtherResultsFail) {
  const Trained reference = train(PrecisionMode::kFp64);
  EXPECT_EQ(judge(reference, train(PrecisionMode::kFp32, /*seed=*/2)).health, Health::kFail);
}

TEST_F(SelfTest, ItWarnsBetweenRoundingAndWrong) {
  const Trained reference = train(PrecisionMode::kFp64);
  const at::Tensor learned = reference.weights - reference.start;
  Trained own = reference;
  own.weights = reference.weights + 0.05 * learned;
  EXPECT_EQ(judge(reference, own).health, Health::kWarn);
  own.weights = reference.weights + 0.2 * learned;
  EXPECT_EQ(judge(reference, own).health, Health::kFail);
  own = reference;
  own.loss = 1.5 * reference.loss;
  EXPECT_EQ(judge(reference, own).health, Health::kFail);
}

TEST_F(SelfTest, WhatIsNoNumberFails) {
  const Trained reference = train(PrecisionMode::kFp64);
  Trained own = reference;
  own.weights = reference.weights.clone();
  own.weights[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(judge(reference, own).health, Health::kFail);
  own = reference;
  own.loss = std::numeric_limits<double>::quiet_NaN();
  const environment::CheckResult finding = judge(reference, own);
  EXPECT_EQ(finding.health, Health::kFail);
  EXPECT_THAT(finding.advice, HasSubstr("wrong results"));
}

TEST_F(SelfTest, ADeviceThatCannotTrainFails) {
  const Trained reference = train(PrecisionMode::kFp64);
  const environment::CheckResult finding = test_device(c10::kXPU, *memory_, reference);
  EXPECT_EQ(finding.health, Health::kFail);
  EXPECT_THAT(finding.found, HasSubstr("could not be trained"));
  EXPECT_EQ(finding.found.find('\n'), std::string::npos);
}

TEST_F(SelfTest, EachDeviceIsTested) {
  const auto results = self_test();
  ASSERT_FALSE(results.empty());
  EXPECT_EQ(results[0].name, "self-test cpu");
  EXPECT_EQ(results[0].finding.health, Health::kPass) << results[0].finding.found;
  const device::CudaBackend* cuda = device::cuda().backend;
  EXPECT_EQ(results.size(), 1u + (cuda == nullptr ? 0 : cuda->device_count()));
}

}  // namespace
}  // namespace brim::doctor
