#include "framework/device/shared_cores.h"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <chrono>
#include <csignal>

#include "framework/base/machine.h"
#include "framework/base/units.h"

namespace brim::device {
namespace {

constexpr double kPeriod_s = 0.1;
constexpr double kSharedDelay = 0.2;  // seconds of run delay a second: the cores are used by others
constexpr double kOwnDelay = 0.05;    // below it they are this process's own …
constexpr int kOwnPeriods = 10;       // … once that has lasted so long

void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

SharedCores::SharedCores() {
  if (!chosen_wait_policy()) watcher_ = std::thread([this] { watch(); });
}

SharedCores::~SharedCores() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

void SharedCores::watch() {
  block_signals();
  const Machine machine;
  double before_s = machine.run_delay_s();
  int own_periods = 0;
  for (double start_s = now_s(); sleep(kPeriod_s);) {
    const double end_s = now_s(), delay_s = machine.run_delay_s();
    const double delay = (delay_s - before_s) / (end_s - start_s);
    start_s = end_s, before_s = delay_s;
    own_periods = delay < kOwnDelay ? own_periods + 1 : 0;
    if (teams_.empty() && delay > kSharedDelay) shorten_spins();
    if (!teams_.empty() && own_periods >= kOwnPeriods) restore_spins();
  }
  restore_spins();
}

/// libgomp counts the threads of all teams and spins a thousand times instead of 300,000 where
/// they are more than the cores (gomp_managed_threads in libgomp's wait.h). A team's threads sleep
/// and stay counted until the thread that opened it ends.
void SharedCores::shorten_spins() {
  const int team = at::get_num_threads();
  if (team < 2) return;  // no thread waits for another
  {
    const std::lock_guard lock(mutex_);
    is_shared_ = true;
  }
  const int cores = Machine().allowed_cores();
  for (int threads = team; threads <= cores; threads += team - 1) {
    teams_.emplace_back([this, team] {
      at::parallel_for(0, team, 1, [](int64_t, int64_t) {});
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !is_shared_; });
    });
  }
}

void SharedCores::restore_spins() {
  {
    const std::lock_guard lock(mutex_);
    is_shared_ = false;
  }
  changed_.notify_all();
  for (std::thread& team : teams_) team.join();
  teams_.clear();
}

/// False once the process ends.
bool SharedCores::sleep(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [this] { return stops_; });
}

}  // namespace brim::device
