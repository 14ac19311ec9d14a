// LibTorch's warnings of host syncs are counted, and no other.
#include "framework/train/observe/host_syncs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace brim::train {
namespace {

struct Heard : c10::WarningHandler {
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;
};

TEST(HostSyncs, AreCountedAndOtherWarningsPassOn) {
  Heard heard;
  const c10::WarningUtils::WarningHandlerGuard outer(&heard);
  HostSyncs syncs(c10::kCPU);
  {
    const HostSyncs::Watch watch(syncs);
    const c10::WarningUtils::WarningHandlerGuard inner(&syncs);
    TORCH_WARN("called a synchronizing CUDA operation");
    TORCH_WARN("something else");
    TORCH_WARN("called a synchronizing CUDA operation");
  }
  EXPECT_EQ(syncs.take(), 2);
  EXPECT_EQ(syncs.take(), 0);
  EXPECT_EQ(heard.messages, std::vector<std::string>{"something else"});
}

TEST(HostSyncs, OfACpuAreNone) {
  Heard heard;
  const c10::WarningUtils::WarningHandlerGuard outer(&heard);
  HostSyncs syncs(c10::kCPU);
  const HostSyncs::Watch watch(syncs);
  TORCH_WARN("called a synchronizing CUDA operation");
  EXPECT_EQ(syncs.take(), 0);
  EXPECT_EQ(heard.messages.size(), 1);
}

}  // namespace
}  // namespace brim::train
