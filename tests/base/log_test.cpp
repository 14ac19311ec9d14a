// Lines on stderr, alone and beside a live progress line.
#include "framework/base/log.h"

#include <gmock/gmock.h>

#include <sstream>
#include <thread>
#include <vector>

namespace brim {
namespace {

TEST(Log, LinesCarryTheProgramAndWarningsSaySo) {
  ::testing::internal::CaptureStderr();
  log::info("{} of {}", 1, 2);
  log::warning("slow");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "brim: 1 of 2\nbrim: warning: slow\n");
}

TEST(Log, ALiveLineMakesWayAndComesBack) {
  ::testing::internal::CaptureStderr();
  log::live("50 %");
  log::live("50 %");
  log::info("saved");
  log::live("");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "\r\x1b[K50 %\r\x1b[Kbrim: saved\n50 %\r\x1b[K");
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log::info("{}", std::string(80, static_cast<char>('a' + t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line, "brim: " + std::string(80, line.back()));
  }
  EXPECT_EQ(count, 400);
}

}  // namespace
}  // namespace brim
