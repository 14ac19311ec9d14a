// A first signal is a request, a second one the end.
#include "framework/base/stop.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace brim {
namespace {

[[noreturn]] void signal_twice(int first, int second) {
  install_stop_handlers();
  if (stop_requested()) std::exit(10);
  std::raise(first);
  if (!stop_requested()) std::exit(11);
  if (second != 0) std::raise(second);
  std::exit(0);
}

TEST(Stop, FirstSignalIsARequest) {
  EXPECT_EXIT(signal_twice(SIGINT, 0), ::testing::ExitedWithCode(0), "stopping after this step");
  EXPECT_EXIT(signal_twice(SIGTERM, 0), ::testing::ExitedWithCode(0), "stopping after this step");
}

TEST(Stop, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(signal_twice(SIGINT, SIGINT), ::testing::ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(signal_twice(SIGINT, SIGTERM), ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(Stop, ALimitOnFileSizeDoesNotKill) {
  EXPECT_EXIT(signal_twice(SIGINT, SIGXFSZ), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace brim
