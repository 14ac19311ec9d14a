#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "tests/cuda/gpu.h"

namespace brim::cuda {
namespace {

constexpr int64_t kMiB = 1 << 20;

at::Tensor allocate(int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
}

TEST_F(Gpu, DescribesItself) {
  ASSERT_GE(backend().device_count(), 1);
  EXPECT_THAT(backend().name(0), testing::Not(testing::IsEmpty()));
  EXPECT_GE(backend().compute_capability(0), 75);
  EXPECT_THAT(backend().driver_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+"));
  const auto libraries = backend().libraries();
  EXPECT_EQ(libraries.at("cuda"), "13.0");
  EXPECT_TRUE(libraries.at("cudnn").starts_with("9.")) << libraries.at("cudnn");
  EXPECT_TRUE(libraries.at("nccl").starts_with("2.")) << libraries.at("nccl");
}

TEST_F(Gpu, CountsMemoryAndKeepsThePeak) {
  backend().reset_peak(0);
  const device::CudaMemory before = backend().memory(0);
  { const at::Tensor big = allocate(64 * kMiB); }
  const device::CudaMemory after = backend().memory(0);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(after.peak_bytes, before.allocated_bytes + 64 * kMiB);
  EXPECT_GE(after.reserved_bytes, 64 * kMiB);
  EXPECT_GT(backend().space(0).total_bytes, backend().space(0).free_bytes);

  backend().release_cached();
  EXPECT_LE(backend().memory(0).reserved_bytes, after.reserved_bytes - 64 * kMiB);
  backend().reset_peak(0);
  EXPECT_EQ(backend().memory(0).peak_bytes, before.allocated_bytes);
}

TEST_F(Gpu, KeepsToItsShareOfTheMemory) {
  backend().release_cached();
  const int64_t total = backend().space(0).total_bytes;
  backend().set_memory_fraction(0.01, 0);
  EXPECT_THROW(allocate(total / 50), c10::OutOfMemoryError);
  backend().set_memory_fraction(1.0, 0);
  EXPECT_NO_THROW(allocate(total / 50));
}

TEST_F(Gpu, TurnsAWaitOfTheHostIntoAnError) {
  const at::Tensor one = at::ones({1}, at::TensorOptions().device(at::kCUDA));
  backend().set_sync_debug_mode(device::SyncDebugMode::kError);
  EXPECT_THROW(one.item(), c10::Error);
  backend().set_sync_debug_mode(device::SyncDebugMode::kOff);
  EXPECT_EQ(one.item().toFloat(), 1.0f);
}

}  // namespace
}  // namespace brim::cuda
