// --profile's words, and the NVTX ranges for Nsight through a stand-in for LibTorch's CUDA half.
#include "framework/train/observe/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <string>
#include <vector>

#include "framework/base/error.h"
#include "tests/support/temporary_folder.h"

namespace brim::train {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST(ProfileSteps, AreReadFromWords) {
  const ProfileSteps steps = read_profile_steps("steps=10..15");
  EXPECT_EQ(steps.first, 10);
  EXPECT_EQ(steps.last, 15);
  EXPECT_EQ(read_profile_steps("steps=7..7").last, 7);
  EXPECT_EQ(read_profile_steps("steps=1..1000").last, 1000);
}

TEST(ProfileSteps, OtherWordsAreRefused) {
  for (const char* text :
       {"", "10..15", "steps=", "steps=10", "steps=15..10", "steps=a..b", "steps=0..3",
        "steps=-1..3", "steps=1..2x", "steps=1...3", "steps=1..1001", "steps= 1..3", "step=1..3",
        "steps=1..99999999999999999999", "steps=+1..3"}) {
    try {
      read_profile_steps(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kRecipe);
      EXPECT_NE(std::string(error.what()).find("as in steps=10..15"), std::string::npos);
    }
  }
}

/// Of no device.
struct NoMemory final : device::Memory {
  NoMemory() : Memory(0) {}
  device::MemoryStats stats() const override { return {}; }
  void reset_peak() override {}
  void release_cached() override {}
  int64_t outside_bytes() const override { return 0; }
  void forget_outside_peak() override {}
  void start_history() override {}
  std::string snapshot() override { return "snapshot"; }
  void synchronize() const override {}
  void set_cap(int64_t) override {}
};

TEST(ProfileFiles, EachTraceHasAMemorySnapshotOfItsOwn) {
  const testing::TemporaryFolder folder;
  NoMemory memory;
  for (const char* name : {"run1.0.json", "run1.5.json", "steps-1.0.pt.trace.json"}) {
    Timeline timeline;
    Profiler profiler(timeline, c10::kCPU);
    profiler.record({1, 1}, folder / name, memory);
    profiler.before(1);
    profiler.after(1);
  }
  EXPECT_THAT(folder.names(),
              UnorderedElementsAre("run1.0.json", "run1.0.json.memory.pickle", "run1.5.json",
                                   "run1.5.json.memory.pickle", "steps-1.0.pt.trace.json",
                                   "steps-1.0.memory.pickle"));
}

/// What Nsight would hear.
struct Nsight final : torch::profiler::impl::ProfilerStubs {
  mutable std::vector<std::string> heard;
  void rangePush(const char* name) const override { heard.emplace_back(name); }
  void rangePop() const override { heard.emplace_back("-"); }
  void record(c10::DeviceIndex*, torch::profiler::impl::ProfilerVoidEventStub*,
              int64_t*) const override {}
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub*,
                const torch::profiler::impl::ProfilerVoidEventStub*) const override {
    return 0;
  }
  void mark(const char*) const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)>) const override {}
  void synchronize() const override {}
};

class Ranges : public ::testing::Test {
 protected:
  Ranges() { torch::profiler::impl::registerCUDAMethods(&nsight_); }
  static Nsight nsight_;  // LibTorch keeps it
};
Nsight Ranges::nsight_;

TEST_F(Ranges, StepsAndPhasesOfAGpuAreNested) {
  nsight_.heard.clear();
  Timeline timeline;
  Profiler profiler(timeline, c10::Device(c10::kCUDA, 0));
  profiler.before(3);
  timeline.enter(Phase::kForward);
  timeline.enter(Phase::kBackward);
  timeline.enter(Phase::kOther);
  profiler.after(3);
  EXPECT_THAT(nsight_.heard,
              ElementsAre("ProfilerStep#3", "forward", "-", "backward", "-", "other", "-", "-"));
}

TEST_F(Ranges, AStepThatThrowsEndsThem) {
  nsight_.heard.clear();
  {
    Timeline timeline;
    Profiler profiler(timeline, c10::Device(c10::kCUDA, 0));
    profiler.before(1);
    timeline.enter(Phase::kForward);
  }
  EXPECT_THAT(nsight_.heard, ElementsAre("ProfilerStep#1", "forward", "-", "-"));
}

TEST_F(Ranges, TheCpuHasNone) {
  nsight_.heard.clear();
  Timeline timeline;
  Profiler profiler(timeline, c10::kCPU);
  profiler.before(1);
  timeline.enter(Phase::kForward);
  profiler.after(1);
  EXPECT_TRUE(nsight_.heard.empty());
}

}  // namespace
}  // namespace brim::train
