// Who is seen to hold which devices, with real files, and how they are counted.
#include "framework/site/hold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/files.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace brim::site {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Device kGpu0{.word = "GPU-0aaa", .index = 0};
const Device kGpu1{.word = "GPU-1aaa", .index = 1};

Limits at_most(int count, const std::string& more = "") {
  return Limits(
      parse_site(fmt::format("contact = \"ada\"\n[rules.a]\nat_most = {}\n{}", count, more), "s"),
      {.user = "ann", .groups = {}});
}

class Holds : public ::testing::Test {
 protected:
  Holds() { ::setenv("BRIM_GPU_LOCK_FOLDER", locks_.c_str(), 1); }
  ~Holds() override { ::unsetenv("BRIM_GPU_LOCK_FOLDER"); }

  brim::testing::TemporaryFolder folder_;
  fs::path locks_ = folder_ / "locks";
};

TEST_F(Holds, AreSeenWhileTheyLive) {
  EXPECT_THAT(read_holds(), IsEmpty());
  {
    const Hold hold({kGpu0, kGpu1}, "digits");
    ASSERT_EQ(read_holds().size(), 1U);
    const Held held = read_holds()[0];
    EXPECT_EQ(held.user, ::geteuid());
    EXPECT_EQ(held.process, ::getpid());
    EXPECT_EQ(shown(held.devices), "GPU 0, GPU 1");
    EXPECT_THAT(held.shown(), HasSubstr("GPU 0, GPU 1 by digits (process "));
  }
  EXPECT_THAT(read_holds(), IsEmpty());
  EXPECT_TRUE(fs::is_empty(locks_));
}

TEST_F(Holds, OfAKilledProcessAreRemoved) {
  const pid_t child = ::fork();
  if (child == 0) {
    const Hold hold({kGpu0}, "killed");
    ::_exit(0);  // as kill -9 would, without destructors
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(fs::is_empty(locks_));
  EXPECT_THAT(read_holds(), IsEmpty());
  EXPECT_TRUE(fs::is_empty(locks_));
}

TEST_F(Holds, FilesOfOthersMaySayAnything) {
  const Hold hold({kGpu0}, "digits");
  ::mkfifo((locks_ / "held-1-fifo").c_str(), 0666);
  fs::create_symlink("/etc/passwd", locks_ / "held-1-link");
  fs::create_directory(locks_ / "held-1-folder");
  std::list<FileLock> locked;
  for (const std::string text : {"", "{", "{\"process\": 1, \"what\": 2, \"devices\": []}", "[]"}) {
    const fs::path file = locks_ / fmt::format("held-1-{}", locked.size());
    locked.emplace_back(file, "taken");
    std::ofstream(file) << text;
  }
  EXPECT_EQ(read_holds().size(), 1U);
}

TEST_F(Holds, AreCountedBesideEachOther) {
  const Limits limits = at_most(2);
  const auto first = take_hold(limits, {kGpu0}, "first");
  const auto same = take_hold(limits, {kGpu0}, "on the same GPU");  // a GPU counts once
  const auto second = take_hold(limits, {kGpu1}, "second");
  const std::string said =
      error_of(Exit::kResource, [&] { take_hold(limits, {Device()}, "third"); });
  EXPECT_THAT(said, HasSubstr("rule 'a' (s:3) gives ann at most 2 devices at once: this run would "
                              "make it 3; held already: GPU 0 by first (process "));
  EXPECT_THAT(said, HasSubstr("Wait or end one, or ask ada"));
  EXPECT_EQ(read_holds().size(), 3U);  // the refused one has left nothing
}

TEST_F(Holds, OfOtherDevicesDoNotCountForARule) {
  const Limits limits = at_most(1, "devices = [\"!cpu\"]");
  const auto gpu = take_hold(limits, {kGpu0}, "first");
  const auto on_cpu = take_hold(limits, {Device(), Device()}, "second");
  EXPECT_THAT(error_of(Exit::kResource, [&] { take_hold(limits, {kGpu1}, "third"); }),
              HasSubstr("at most 1 device at once of those that it is about"));
}

TEST_F(Holds, ARunThatIsTooLargeByItselfIsToldSo) {
  EXPECT_THAT(error_of(Exit::kResource,
                       [&] {
                         take_hold(at_most(1), {Device(), Device()}, "wide");
                       }),
              HasSubstr("this run would make it 2. Take fewer, or ask ada"));
}

TEST_F(Holds, WithoutAFolderNothingCanBeCounted) {
  std::ofstream(locks_) << "no folder";
  EXPECT_NE(take_hold(Limits(), {kGpu0}, "no rule counts"), nullptr);
  EXPECT_THAT(error_of(Exit::kResource, [&] { take_hold(at_most(1), {kGpu0}, "counted"); }),
              HasSubstr("no file can be made in " + locks_.string()));
}

TEST_F(Holds, TakenAtTheSameTimeAreNeverTooMany) {
  const Limits limits = at_most(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Hold>> held(6);
    std::vector<std::thread> threads;
    for (auto& one : held) {
      threads.emplace_back([&] {
        try {
          one = take_hold(limits, {Device()}, "at once");
        } catch (const Error&) {
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_LE(std::ranges::count_if(held, [](const auto& one) { return one != nullptr; }), 2);
  }
}

}  // namespace
}  // namespace brim::site
