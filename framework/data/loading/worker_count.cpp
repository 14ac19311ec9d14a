#include "framework/data/loading/worker_count.h"

#include <algorithm>
#include <cmath>

namespace brim::data {
namespace {

constexpr double kWaitWorthActing = 0.01;  // of the wall time
constexpr double kMuchWait = 0.2;
constexpr double kFullyBusy = 0.8;  // of the threads' time
constexpr double kReserve = 1.25;

}  // namespace

int64_t next_worker_count(const LoaderPace& pace, int64_t active, int64_t limit) {
  const double busy_threads = pace.busy_s / pace.wall_s;
  const double wait = pace.wait_s / pace.wall_s;
  if (wait > kWaitWorthActing) {
    // Waiting that more threads don't cure, such as that for a slow disk's first byte, is left.
    if (busy_threads < kFullyBusy * static_cast<double>(active)) return active;
    return std::min(limit, wait > kMuchWait ? 2 * active : active + 1);
  }
  const auto enough = static_cast<int64_t>(std::ceil(busy_threads * kReserve));
  return std::clamp<int64_t>(std::min(active, enough), 1, limit);
}

}  // namespace brim::data
