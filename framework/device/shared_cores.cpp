#include "framework/device/shared_cores.h"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "framework/base/machine.h"
#include "framework/base/units.h"

namespace brim::device {
namespace {

constexpr double kPeriod_s = 0.1;
constexpr double kSharedDelay = 0.2;  // seconds of run delay a second: the cores are used by others
constexpr double kOwnDelay = 0.05;    // below it they are this process's own
constexpr int kPeriods = 10;          // a second of either before anything else follows from it
constexpr int kBurst = 3;             // of more wait, as shorter ones come with a run's start
constexpr int kWindows = 6;           // of a comparison, three of each way to wait
constexpr double kWindow_s = 1;       // at least, and at least so many steps …
constexpr int64_t kWindowSteps = 4;
constexpr double kLongestWindow_s = 20;  // … but no longer than this
constexpr double kGain = 1.05;           // less may be chance
constexpr double kDecided_s = 120;       // for which a comparison decides

void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

bool WaitChoice::spins_briefly(double now_s, double delay, int64_t steps) {
  own_periods_ = delay < kOwnDelay ? own_periods_ + 1 : 0;
  shared_periods_ = delay < kOwnDelay ? 0 : shared_periods_ + 1;
  const bool are_own = own_periods_ >= kPeriods, are_shared = shared_periods_ >= kPeriods;
  if (windows_left_ > 0) {
    if (is_brief_ && 2 * own_periods_ >= kPeriods) owns_while_brief_ = true;
    compare(now_s, delay, steps);
    return is_brief_;
  }
  // More wait than when spinning was found to be faster: others have come.
  crowded_periods_ = delay > spinning_delay_ + kSharedDelay ? crowded_periods_ + 1 : 0;
  if (!is_brief_ && crowded_periods_ >= kBurst) {
    is_brief_ = true;
    decided_until_s_ = 0;
    undecided_periods_ = 0;
  }
  // Hardly any wait, which brief spins alone did not bring about: others have left.
  if (is_brief_ && are_own && !owns_while_brief_) decided_until_s_ = 0;
  if (now_s < decided_until_s_) return is_brief_;
  undecided_periods_ = is_brief_ ? undecided_periods_ + 1 : 0;
  if (are_own) {
    is_brief_ = false;
    spinning_delay_ = 0;
  }
  // Threads that sleep wait a little each time they are woken, which need not be others' work.
  if ((are_shared || undecided_periods_ > kPeriods) && steps > 0) {
    is_brief_ = true;
    windows_left_ = kWindows;
    steps_per_s_ = {};
    spinning_delay_ = 0;
    owns_while_brief_ = false;
    begin_window(now_s, steps);
  }
  return is_brief_;
}

void WaitChoice::begin_window(double now_s, int64_t steps) {
  has_first_step_ = false;
  window_start_s_ = now_s;
  window_first_step_ = steps;
}

/// Brief windows come first, so that a much slower one that spins ends early.
void WaitChoice::compare(double now_s, double delay, int64_t steps) {
  const double passed_s = now_s - window_start_s_;
  const int64_t taken = steps - window_first_step_;
  if (!has_first_step_ && taken > 0) {  // what began in the other way has ended
    begin_window(now_s, steps);
    has_first_step_ = true;
    return;
  }
  if (!is_brief_) spinning_delay_ = std::max(spinning_delay_, delay);
  const int brief_windows = (kWindows - windows_left_ + 1) / 2;
  const bool is_hopeless =
      !is_brief_ && passed_s >= kWindow_s &&
      2 * static_cast<double>(taken + 1) < passed_s * steps_per_s_[1] / brief_windows;
  const bool is_over = passed_s >= kLongestWindow_s;
  if (!is_hopeless && !is_over && (passed_s < kWindow_s || taken < kWindowSteps)) return;
  steps_per_s_[is_brief_ ? 1 : 0] += static_cast<double>(taken) / passed_s;
  if (--windows_left_ > 0 && !is_hopeless && taken > 0) {
    is_brief_ = !is_brief_;
    begin_window(now_s, steps);
    return;
  }
  windows_left_ = 0;
  // Without steps nothing was found: threads wait as is best beside others.
  is_brief_ = is_hopeless || taken == 0 || steps_per_s_[1] > kGain * steps_per_s_[0];
  decided_until_s_ = now_s + kDecided_s;
}

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

std::atomic<int64_t> SharedCores::steps_ = 0;

void SharedCores::watch() {
  block_signals();
  const Machine machine;
  WaitChoice choice;
  double before_s = machine.run_delay_s();
  for (double start_s = now_s(); sleep(kPeriod_s);) {
    const double end_s = now_s(), delay_s = machine.run_delay_s();
    const double delay = (delay_s - before_s) / (end_s - start_s);
    start_s = end_s, before_s = delay_s;
    const bool is_brief = choice.spins_briefly(end_s, delay, steps_);
    if (is_brief && teams_.empty()) shorten_spins();
    if (!is_brief && !teams_.empty()) restore_spins();
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
