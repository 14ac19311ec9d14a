// Phases of a device whose batches are copied on a stream of their own.
#include "framework/train/observe/device_phases.h"

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "framework/data/transfer/copy_stream.h"
#include "tests/support/scripted_streams.h"

namespace brim::train {
namespace {

class DevicePhasesTest : public ::testing::Test {
 protected:
  DevicePhasesTest() { ScriptedStreams::reset(); }

  /// As data::DevicePrefetcher loads a batch, of which copy and transform take those seconds.
  void load(double copy_s, double transform_s) {
    timeline_.enter(Phase::kCopy);
    const c10::OptionalStreamGuard guard(copies_.stream());
    copies_.begin();
    ScriptedStreams::enqueue(copies_.stream(), copy_s);
    timeline_.enter(Phase::kTransform);
    ScriptedStreams::enqueue(copies_.stream(), transform_s);
    copies_.end();
  }
  void wait_for_batch() {
    timeline_.enter(Phase::kCopy);
    copies_.block(steps_);
  }
  void work(Phase phase, double seconds) {
    timeline_.enter(phase);
    ScriptedStreams::enqueue(steps_, seconds);
  }

  Timeline timeline_;
  const c10::Stream steps_ =
      c10::impl::VirtualGuardImpl(kScriptedDevice.type()).getStream(kScriptedDevice);
  DevicePhases phases_{timeline_, steps_};
  data::CopyStream copies_{kScriptedDevice};
};

// The copies' own end is behind the step's: it must be asked for neither.
TEST_F(DevicePhasesTest, AStepEndsWithoutTheCopyOfTheNextBatch) {
  work(Phase::kForward, 2);
  work(Phase::kBackward, 3);
  load(/*copy_s=*/40, /*transform_s=*/2);
  work(Phase::kOptimizer, 1);
  phases_.end_step();
  ScriptedStreams::pass_until(5.5);
  EXPECT_FALSE(phases_.pop(/*wait=*/false));
  ScriptedStreams::pass_until(6);
  const auto seconds = phases_.pop(/*wait=*/false);
  ASSERT_TRUE(seconds);
  EXPECT_EQ((*seconds)[static_cast<size_t>(Phase::kForward)], 2);
  EXPECT_EQ((*seconds)[static_cast<size_t>(Phase::kBackward)], 3);
  EXPECT_EQ((*seconds)[static_cast<size_t>(Phase::kCopy)], 0);
  EXPECT_EQ((*seconds)[static_cast<size_t>(Phase::kTransform)], 0);
  EXPECT_EQ((*seconds)[static_cast<size_t>(Phase::kOptimizer)], 1);
}

TEST_F(DevicePhasesTest, WhatAStepWaitsForItsBatchIsCopy) {
  load(/*copy_s=*/4, /*transform_s=*/1);
  wait_for_batch();
  work(Phase::kForward, 2);
  phases_.end_step();
  load(/*copy_s=*/1, /*transform_s=*/0.5);  // while this step computes
  work(Phase::kForward, 2);
  wait_for_batch();
  work(Phase::kBackward, 1);
  phases_.end_step();
  const auto first = phases_.pop(/*wait=*/true), second = phases_.pop(/*wait=*/true);
  ASSERT_TRUE(first && second);
  EXPECT_EQ((*first)[static_cast<size_t>(Phase::kCopy)], 5);
  EXPECT_EQ((*first)[static_cast<size_t>(Phase::kForward)], 2);
  EXPECT_EQ((*second)[static_cast<size_t>(Phase::kCopy)], 0);
  EXPECT_EQ((*second)[static_cast<size_t>(Phase::kForward)], 2);
  EXPECT_EQ((*second)[static_cast<size_t>(Phase::kBackward)], 1);
}

/// The first batch holds the step up for all of its 5 seconds, the second one for one of its 3.
TEST_F(DevicePhasesTest, ACopyThatNoStepWaitsForIsOverlapped) {
  load(/*copy_s=*/4, /*transform_s=*/1);
  wait_for_batch();
  work(Phase::kForward, 2);
  load(/*copy_s=*/2, /*transform_s=*/1);
  wait_for_batch();
  work(Phase::kForward, 1);
  load(/*copy_s=*/0, /*transform_s=*/0);
  wait_for_batch();
  ScriptedStreams::pass_until(100);
  EXPECT_EQ(copies_.take_overlapped_s(), 2);
  EXPECT_EQ(copies_.take_overlapped_s(), 0);
}

}  // namespace
}  // namespace brim::train
