// A child that is asked to stop ends, however early that comes.
#include "framework/experiment/child_process.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "framework/base/stop.h"
#include "tests/support/temporary_folder.h"

namespace brim::experiment {
namespace {

TEST(ChildProcess, AStopRightAfterTheForkIsNotLost) {
  const testing::TemporaryFolder folder;
  const auto run = [&folder] {
    install_stop_handlers();  // which the child has until it becomes another program
    pthread_atfork(nullptr, nullptr, [] { std::raise(SIGTERM); });
    ChildProcess child({.arguments = {"--gtest_list_tests"}, .log = folder.path() / "log"});
    for (;;) {
      if (const auto end = child.try_wait()) std::exit(end->status);
      std::this_thread::sleep_for(kStopPoll);
    }
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace brim::experiment
