// The simulated GPU shows the faults that it is there for: each is made on purpose, beside the same
// work done right.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cstring>

#include "framework/device/cuda_loader.h"
#include "framework/device/stream_event.h"

namespace brim {
namespace {

constexpr int64_t kCount = 1000;

class SimulatedGpu : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("BRIM_SIMULATED_DELAY_US", "50000", /*overwrite=*/1);
    ASSERT_NE(device::cuda().backend, nullptr) << device::cuda().why_not;
  }

  /// What follows on this stream is late, also where the host's threads wait for a core.
  void queue_work() const {
    for (int i = 0; i < 10; ++i) pinned_.to(gpu_, /*non_blocking=*/true);
  }

  const c10::Device gpu_{c10::kCUDA, 0};
  const c10::Stream other_ = c10::impl::VirtualGuardImpl(c10::kCUDA)
                                 .getStreamFromGlobalPool(gpu_, /*isHighPriority=*/false);
  at::Tensor pinned_ = at::ones({kCount}, at::TensorOptions().pinned_memory(true));
};

TEST_F(SimulatedGpu, AWaitForAnotherStreamThatIsLeftOut) {
  for (const bool waits : {false, true}) {
    at::Tensor copied;
    c10::Event done(c10::kCUDA);
    {
      const c10::StreamGuard guard(other_);
      queue_work();
      copied = pinned_.to(gpu_, /*non_blocking=*/true);
      done.record(other_);
    }
    if (waits) done.block(device::current_stream(gpu_));
    const double sum = copied.sum().item<double>();
    if (waits) {
      EXPECT_EQ(sum, kCount);
    } else {
      EXPECT_TRUE(std::isnan(sum)) << sum;
    }
  }
}

TEST_F(SimulatedGpu, PinnedMemoryThatIsFilledAgainTooEarly) {
  for (const bool waits : {false, true}) {
    queue_work();
    const at::Tensor copied = pinned_.to(gpu_, /*non_blocking=*/true);
    if (waits) device::StreamEvent::now(gpu_)->wait();
    pinned_.fill_(2);
    EXPECT_EQ(copied.sum().item<double>(), waits ? kCount : 2 * kCount);
    pinned_.fill_(1);
  }
}

TEST_F(SimulatedGpu, PinnedMemoryIsKeptForItsCopy) {
  at::Tensor copied;
  {
    const at::Tensor own = pinned_.pin_memory().clone().pin_memory();
    copied = own.to(gpu_, /*non_blocking=*/true);
  }
  EXPECT_EQ(copied.sum().item<double>(), kCount);
}

TEST_F(SimulatedGpu, AResultThatTheHostReadsTooEarly) {
  for (const bool waits : {false, true}) {
    const at::Tensor host = at::zeros({kCount}, at::TensorOptions().pinned_memory(true));
    queue_work();
    host.copy_(at::ones({kCount}, gpu_), /*non_blocking=*/true);
    if (waits) device::StreamEvent::now(gpu_)->wait();
    EXPECT_EQ(host.sum().item<double>(), waits ? kCount : 0);
    device::cuda().backend->synchronize(0);
  }
}

TEST_F(SimulatedGpu, MemoryThatIsFreedWhileAnotherStreamReadsIt) {
  for (const bool is_recorded : {false, true}) {
    const at::Tensor host = at::zeros({kCount}, at::TensorOptions().pinned_memory(true));
    at::Tensor made = at::ones({kCount}, gpu_);
    {
      const c10::StreamGuard guard(other_);
      queue_work();
      host.copy_(made, /*non_blocking=*/true);
    }
    if (is_recorded) made.record_stream(other_);
    made.reset();
    other_.synchronize();
    const double sum = host.sum().item<double>();
    if (is_recorded) {
      EXPECT_EQ(sum, kCount);
    } else {
      EXPECT_TRUE(std::isnan(sum)) << sum;
    }
  }
}

TEST_F(SimulatedGpu, TellsHowLongAStreamTook) {
  const auto before = device::StreamEvent::now(gpu_);
  queue_work();
  const at::Tensor copied = pinned_.to(gpu_, /*non_blocking=*/true);
  const auto after = device::StreamEvent::now(gpu_);
  EXPECT_FALSE(after->is_done());
  after->wait();
  EXPECT_GT(before->seconds_to(*after), 0);
}

TEST_F(SimulatedGpu, MemoryHasAnEnd) {
  const auto& backend = *device::cuda().backend;
  const int64_t total = backend.space(0).total_bytes;
  backend.set_memory_fraction(0.01, 0);
  EXPECT_THROW(at::empty({total / 50}, at::device(gpu_).dtype(at::kByte)), c10::OutOfMemoryError);
  backend.set_memory_fraction(1.0, 0);
  EXPECT_NO_THROW(at::empty({total / 50}, at::device(gpu_).dtype(at::kByte)));
}

}  // namespace
}  // namespace brim
