// The number of decoding threads follows the consumer's pace.
#include "framework/data/loading/worker_count.h"

#include <gtest/gtest.h>

namespace brim::data {
namespace {

/// Threads after enough stretches for the number to settle, when a second of training eats `work`
/// seconds of decoding, and each thread brings one a second.
int64_t settled(double work, int64_t start, int64_t limit) {
  int64_t active = start;
  for (int i = 0; i < 50; ++i) {
    const auto threads = static_cast<double>(active);
    const bool starved = work > threads;
    // A starved consumer's second is stretched by the wait.
    const double wall = starved ? work / threads : 1.0;
    active =
        next_worker_count({.wall_s = wall, .wait_s = wall - 1.0, .busy_s = work}, active, limit);
  }
  return active;
}

TEST(WorkerCountTest, GrowsToWhatTheConsumerEats) {
  EXPECT_EQ(settled(0.1, 1, 16), 1);
  EXPECT_GE(settled(3.5, 1, 16), 4);
  EXPECT_LE(settled(3.5, 1, 16), 5);
  EXPECT_EQ(settled(100.0, 1, 16), 16);
}

TEST(WorkerCountTest, ShrinksToALittleMoreThanThat) {
  EXPECT_EQ(settled(0.1, 16, 16), 1);
  EXPECT_EQ(settled(3.5, 16, 16), 5);
  EXPECT_EQ(settled(0.0, 16, 16), 1);
}

TEST(WorkerCountTest, WaitingWithIdleThreadsIsNotCuredByMore) {
  EXPECT_EQ(next_worker_count({.wall_s = 1, .wait_s = 0.5, .busy_s = 1}, 4, 16), 4);
}

TEST(WorkerCountTest, MuchWaitDoublesALittleAddsOne) {
  EXPECT_EQ(next_worker_count({.wall_s = 1, .wait_s = 0.5, .busy_s = 4}, 4, 16), 8);
  EXPECT_EQ(next_worker_count({.wall_s = 1, .wait_s = 0.05, .busy_s = 4}, 4, 16), 5);
  EXPECT_EQ(next_worker_count({.wall_s = 1, .wait_s = 0.5, .busy_s = 4}, 4, 6), 6);
}

}  // namespace
}  // namespace brim::data
