// Peaks of GPUs by the names that NVML and CUDA give them.
#include "framework/device/peak.h"

#include <gtest/gtest.h>

namespace brim::device {
namespace {

TEST(PeakFlops, TheNameDecides) {
  EXPECT_EQ(peak_flops("NVIDIA H100 80GB HBM3", "bf16"), 989.5e12);
  EXPECT_EQ(peak_flops("NVIDIA H100 PCIe", "bf16"), 756e12);
  EXPECT_EQ(peak_flops("NVIDIA H200", "tf32"), 494.7e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", "fp64"), 19.5e12);
  EXPECT_EQ(peak_flops("Tesla V100-SXM2-16GB", "fp16"), 125e12);
}

TEST(PeakFlops, ANameThatBeginsLikeAnotherIsItsOwn) {
  EXPECT_EQ(peak_flops("NVIDIA L4", "bf16"), 121e12);
  EXPECT_EQ(peak_flops("NVIDIA L40", "bf16"), 181e12);
  EXPECT_EQ(peak_flops("NVIDIA L40S", "bf16"), 362e12);
  EXPECT_EQ(peak_flops("NVIDIA A10G", "bf16"), 70e12);
  EXPECT_EQ(peak_flops("NVIDIA A1000", "bf16"), 0);
}

TEST(PeakFlops, WhatIsNotKnownIsZero) {
  EXPECT_EQ(peak_flops("An accelerator", "bf16"), 0);
  EXPECT_EQ(peak_flops("Tesla T4", "bf16"), 0) << "it has no such matrix units";
  EXPECT_EQ(peak_flops("NVIDIA H100", "int8"), 0);
}

}  // namespace
}  // namespace brim::device
