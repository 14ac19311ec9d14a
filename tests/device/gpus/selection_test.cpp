// Which GPUs a run takes, on machines that are made up, with real lock files and processes.
#include "framework/device/gpus/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "framework/base/error.h"
#include "tests/support/temporary_folder.h"

namespace brim::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Where = Selection::Where;

constexpr int64_t kGiB = int64_t{1} << 30;

class SelectDevices : public ::testing::Test {
 protected:
  SelectDevices() {
    ::setenv("BRIM_GPU_LOCK_FOLDER", (folder_ / "claims").c_str(), 1);
    census_.is_known = true;
    for (int i = 0; i < 3; ++i) {
      GpuReading gpu;
      gpu.index = i;
      gpu.uuid = "GPU-" + std::to_string(i);
      gpu.memory_total_bytes = 80 * kGiB;
      gpu.memory_free_bytes = 79 * kGiB;
      gpu.busy_percent = 0;
      census_.gpus.push_back(gpu);
    }
  }
  ~SelectDevices() override { ::unsetenv("BRIM_GPU_LOCK_FOLDER"); }

  Selection select(const std::string& list, const char* visible = nullptr) {
    config_.select = list;
    return select_devices(config_, census_, visible);
  }
  Error error_of(const std::string& list, const char* visible = nullptr) {
    try {
      const Selection selection = select(list, visible);
      ADD_FAILURE() << list << " gave " << selection.visible;
    } catch (const Error& error) {
      return error;
    }
    return Error(Exit::kDone, std::string());
  }
  void make_busy(int gpu) { census_.gpus[gpu].busy_percent = 95; }
  void make_full(int gpu) { census_.gpus[gpu].memory_free_bytes = 10 * kGiB; }
  void lose(int gpu) { census_.gpus[gpu].trouble = "lost: gone"; }

  brim::testing::TemporaryFolder folder_;
  Census census_;
  DeviceConfig config_;
};

TEST_F(SelectDevices, TheCpuNeedsNothing) {
  EXPECT_EQ(select("cpu").where, Where::kCpu);
  EXPECT_EQ(select("cpu,cpu").ranks, 2);
}

TEST_F(SelectDevices, AutoTakesTheFirstOfSeveralIdleGpus) {
  const Selection selection = select("auto");
  EXPECT_EQ(selection.where, Where::kGpus);
  EXPECT_EQ(selection.visible, "GPU-0");
  EXPECT_TRUE(selection.is_auto);
  EXPECT_THAT(selection.warnings, IsEmpty());
  EXPECT_THAT(selection.notes, ElementsAre("on GPU 0, GPU-0"));
}

TEST_F(SelectDevices, AutoLeavesOutBusyFullAndLostGpus) {
  make_busy(0);
  EXPECT_EQ(select("auto").visible, "GPU-1");
  make_full(1);
  EXPECT_EQ(select("auto").visible, "GPU-2");
  lose(2);
  const Error error = error_of("auto");
  EXPECT_EQ(error.status(), Exit::kResource);
  EXPECT_THAT(error.what(), HasSubstr("no GPU is idle ("));
  EXPECT_THAT(error.what(),
              HasSubstr("GPU 0: 79.0 GiB of 80.0 GiB free, at work 95 % of the time"));
  EXPECT_THAT(error.what(), HasSubstr("GPU 1: 10.0 GiB of 80.0 GiB free"));
  EXPECT_THAT(error.what(), HasSubstr("GPU 2: lost: gone"));
  EXPECT_THAT(error.what(), HasSubstr("device.fallback"));
}

TEST_F(SelectDevices, WhatIsIdleCanBeTuned) {
  make_full(0);
  make_busy(1);
  lose(2);
  config_.idle_free_memory = 0.1;
  EXPECT_EQ(select("auto").visible, "GPU-0");
  config_.idle_free_memory = 0.9;
  config_.idle_utilisation = 0.95;
  EXPECT_EQ(select("auto").visible, "GPU-1");
}

TEST_F(SelectDevices, AutoWithoutIdleGpuFallsBackLoudly) {
  make_busy(0);
  make_full(1);
  make_busy(2);
  config_.fallback = Fallback::kCpu;
  Selection selection = select("auto");
  EXPECT_EQ(selection.where, Where::kCpu);
  EXPECT_THAT(selection.warnings, ElementsAre(HasSubstr("training on the CPU")));
  config_.fallback = Fallback::kOtherGpu;
  selection = select("auto");
  EXPECT_EQ(selection.visible, "GPU-1");  // the calmest
  EXPECT_THAT(selection.warnings, ElementsAre(HasSubstr("taking GPU 1 all the same")));
}

TEST_F(SelectDevices, AutoRespectsWhatIsVisible) {
  EXPECT_EQ(select("auto", "2,1").visible, "GPU-1");
  EXPECT_EQ(select("auto", "GPU-2").visible, "GPU-2");
  for (const char* none : {"", "-1"}) {
    const Selection selection = select("auto", none);
    EXPECT_EQ(selection.where, Where::kCpu) << none;
    EXPECT_EQ(selection.visible, "");
    EXPECT_THAT(selection.notes, ElementsAre(HasSubstr("no GPU is visible")));
  }
}

TEST_F(SelectDevices, ListsCountAmongTheVisibleOnes) {
  EXPECT_EQ(select("0").visible, "GPU-0");
  EXPECT_EQ(select("1,0", "2,1").visible, "GPU-1,GPU-2");
  EXPECT_EQ(select("2,0").ranks, 2);
  EXPECT_EQ(select("GPU-2").visible, "GPU-2");
}

TEST_F(SelectDevices, WhatIsNotThereIsRefused) {
  Error error = error_of("1", "2");
  EXPECT_EQ(error.status(), Exit::kRecipe);
  EXPECT_THAT(error.what(), HasSubstr("device '1' is not there: this process sees 1 GPU ("));
  EXPECT_THAT(error.what(), HasSubstr("Choose from 0 to 0"));
  error = error_of("0", "");
  EXPECT_THAT(error.what(), HasSubstr("leaves this process no GPU"));
  error = error_of("GPU-0", "1");
  EXPECT_EQ(error.status(), Exit::kRecipe);
  error = error_of("GPU-");
  EXPECT_THAT(error.what(), HasSubstr("found 'GPU-'"));
  error = error_of("0,GPU-0");
  EXPECT_EQ(error.status(), Exit::kRecipe);
  EXPECT_THAT(error.what(), HasSubstr("GPU 0 is there twice"));
  lose(1);
  error = error_of("0,1");
  EXPECT_EQ(error.status(), Exit::kResource);
  EXPECT_THAT(error.what(), HasSubstr("GPU 1: lost: gone"));
}

TEST_F(SelectDevices, AnAmbiguousUuidIsRefused) {
  census_.gpus[1].uuid = "GPU-0b";
  EXPECT_THAT(error_of("GPU-0").what(), HasSubstr("the UUIDs of GPU 0 and GPU 1 begin so"));
}

TEST_F(SelectDevices, AnotherGpuOrTheCpuInThePlaceOfALostOne) {
  lose(0);
  config_.fallback = Fallback::kOtherGpu;
  Selection selection = select("0,1");
  EXPECT_EQ(selection.visible, "GPU-1,GPU-2");
  EXPECT_THAT(selection.warnings, ElementsAre(HasSubstr("taking GPU 2 in its place")));
  EXPECT_THAT(error_of("0,1,2").what(), HasSubstr("and no other GPU is idle"));
  config_.fallback = Fallback::kCpu;
  selection = select("0,1");
  EXPECT_EQ(selection.where, Where::kCpu);
  EXPECT_EQ(selection.ranks, 1);
  EXPECT_THAT(selection.warnings, ElementsAre(HasSubstr("GPU 0: lost: gone: training on the CPU")));
}

TEST_F(SelectDevices, AGpuInUseIsTakenWhenNamedButNotInSilence) {
  make_busy(1);
  const Selection selection = select("1");
  EXPECT_EQ(selection.visible, "GPU-1");
  EXPECT_THAT(selection.warnings, ElementsAre(HasSubstr("GPU 1 is in use: ")));
}

TEST_F(SelectDevices, RunsThatChooseLeaveEachOthersGpusAlone) {
  {
    const Selection first = select("auto");
    const Selection second = select("auto");
    const Selection named = select("2");
    EXPECT_EQ(first.visible, "GPU-0");
    EXPECT_EQ(second.visible, "GPU-1");
    EXPECT_THAT(named.warnings, IsEmpty());
    EXPECT_THAT(error_of("auto").what(), HasSubstr("GPU 2: taken by another run of Brim"));
    EXPECT_THAT(select("0").warnings, ElementsAre("GPU 0 is taken by another run of Brim"));
    EXPECT_THAT(select("2").warnings, IsEmpty());  // two that were told to share
  }
  EXPECT_EQ(select("auto").visible, "GPU-0");
}

// Three processes choose at the same moment; each one holds its GPU until all have chosen.
TEST_F(SelectDevices, ProcessesStartedTogetherTakeDifferentGpus) {
  int chosen[2];
  int go[2];
  ASSERT_EQ(::pipe(chosen), 0);
  ASSERT_EQ(::pipe(go), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Selection selection = select("auto");
      const char digit = selection.visible.back();
      bool is_fine = ::write(chosen[1], &digit, 1) == 1;
      char byte = 0;
      ::close(go[1]);
      is_fine = is_fine && ::read(go[0], &byte, 1) == 0;
      std::_Exit(is_fine ? 0 : 1);
    }
    children.push_back(child);
  }
  std::set<char> gpus;
  for (int i = 0; i < 3; ++i) {
    char digit = 0;
    ASSERT_EQ(::read(chosen[0], &digit, 1), 1);
    gpus.insert(digit);
  }
  EXPECT_THAT(gpus, ElementsAre('0', '1', '2'));
  ::close(go[1]);
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  // What they held went with them.
  EXPECT_EQ(select("auto").visible, "GPU-0");
  for (const int fd : {chosen[0], chosen[1], go[0]}) ::close(fd);
}

TEST_F(SelectDevices, WithoutAFolderForLocksTheRunGoesOnAndSaysSo) {
  ::setenv("BRIM_GPU_LOCK_FOLDER", "/proc/none/here", 1);
  const Selection selection = select("auto");
  EXPECT_EQ(selection.visible, "GPU-0");
  EXPECT_THAT(selection.warnings, ElementsAre(HasSubstr("two runs may choose the same GPU")));
}

TEST_F(SelectDevices, WithoutNvmlCudasNumbersHold) {
  census_ = {};
  EXPECT_EQ(select("auto").where, Where::kCudaSays);
  EXPECT_EQ(select("3").where, Where::kCudaSays);
  EXPECT_EQ(select("3").visible, "");
  EXPECT_EQ(select("1,0").visible, "1,0");
  EXPECT_EQ(select("1,0", "5,GPU-x").visible, "GPU-x,5");
  EXPECT_EQ(error_of("0,2", "5,6").status(), Exit::kResource);
}

}  // namespace
}  // namespace brim::device
