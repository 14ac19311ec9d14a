// A first signal is a request, a second one the end.
#include "framework/base/stop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>

namespace brim {
namespace {

[[noreturn]] void signal_twice(int first, int second,
                               std::chrono::milliseconds apart = std::chrono::milliseconds(0)) {
  std::signal(SIGHUP, SIG_DFL);  // which nohup has the tests ignore
  install_stop_handlers();
  if (stop_requested()) std::exit(10);
  std::raise(first);
  if (!stop_requested()) std::exit(11);
  std::this_thread::sleep_for(apart);
  if (second != 0) std::raise(second);
  std::exit(0);
}

TEST(Stop, FirstSignalIsARequest) {
  EXPECT_EXIT(signal_twice(SIGINT, 0), ::testing::ExitedWithCode(0), "stopping; a second signal");
  EXPECT_EXIT(signal_twice(SIGTERM, 0), ::testing::ExitedWithCode(0), "stopping; a second signal");
}

TEST(Stop, ALaunchedRankLeavesTheWordsToItsLauncher) {
  ::setenv("TORCHELASTIC_RUN_ID", "x", 1);
  EXPECT_EXIT(signal_twice(SIGTERM, 0), ::testing::ExitedWithCode(0), "^$");
  ::unsetenv("TORCHELASTIC_RUN_ID");
}

TEST(Stop, SecondSignalEndsTheProcess) {
  EXPECT_EXIT(signal_twice(SIGINT, SIGINT, kOneStop), ::testing::ExitedWithCode(128 + SIGINT), "");
  EXPECT_EXIT(signal_twice(SIGINT, SIGTERM, kOneStop), ::testing::ExitedWithCode(128 + SIGTERM),
              "");
}

TEST(Stop, ASignalToAProcessAndToItsGroupIsOne) {
  EXPECT_EXIT(signal_twice(SIGINT, SIGINT), ::testing::ExitedWithCode(0), "stopping");
  EXPECT_EXIT(signal_twice(SIGTERM, SIGINT), ::testing::ExitedWithCode(0), "stopping");
}

TEST(Stop, AHangupIsARequestButNeverTheSecondSignal) {
  EXPECT_EXIT(signal_twice(SIGHUP, SIGHUP, kOneStop), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(signal_twice(SIGTERM, SIGHUP, kOneStop), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(signal_twice(SIGHUP, SIGTERM, kOneStop), ::testing::ExitedWithCode(0), "");
}

TEST(Stop, AReaderThatIsGoneDoesNotKill) {
  EXPECT_EXIT(signal_twice(SIGINT, SIGPIPE), ::testing::ExitedWithCode(0), "");
}

TEST(Stop, AProcessWithNothingToSaveEndsWhereverItWaits) {
  const auto wait = [](bool may_save) {
    install_stop_handlers();
    std::optional<NothingToSave> before(std::in_place);
    std::raise(SIGTERM);
    if (may_save) before.reset();
    if (may_save) ::alarm(1);  // one that was under way
    for (int i = 0; i < (may_save ? 1 : 1000); ++i) ::pause();
    std::exit(0);
  };
  EXPECT_EXIT(wait(false), ::testing::ExitedWithCode(75), "nothing to save");
  EXPECT_EXIT(wait(true), ::testing::ExitedWithCode(0), "");
}

// As a rank asks again and again, once it has learnt that another one stops.
TEST(Stop, AskingAgainGivesNoMoreTime) {
  const auto ask = [] {
    install_stop_handlers();
    const NothingToSave before;
    for (int i = 0; i < 100; ++i) {
      request_stop();
      const NothingToSave nested;
      ::usleep(200'000);
    }
    std::exit(0);
  };
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(75), "nothing to save");
}

TEST(Stop, ALimitOnFileSizeDoesNotKill) {
  EXPECT_EXIT(signal_twice(SIGINT, SIGXFSZ), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace brim
