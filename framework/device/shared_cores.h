// Training beside other work on the same cores. libgomp's threads spin for milliseconds where a
// parallel loop ends; on cores that others use, that time is taken from the thread they wait for,
// and a step takes ten times as long. libgomp itself spins briefly once a process has more OpenMP
// threads than cores, so that state is brought about while threads of this process wait for a core,
// unless steps are faster without, as they can be beside a loader's threads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace brim::device {

/// Decides how threads wait from what is seen in each of its calls, ten a second.
class WaitChoice {
 public:
  /// Whether threads are to spin briefly from now on. `delay`: the seconds a second, since the last
  /// call, for which threads of this process waited for a core. `steps`: training steps until now.
  bool spins_briefly(double now_s, double delay, int64_t steps);

 private:
  void begin_window(double now_s, int64_t steps);
  void compare(double now_s, double delay, int64_t steps);

  bool is_brief_ = false;
  int own_periods_ = 0;        // in a row, with hardly a delay
  int shared_periods_ = 0;     // in a row, with some
  int crowded_periods_ = 0;    // in a row, with more than spinning was chosen with
  int undecided_periods_ = 0;  // with brief spins that no comparison has chosen
  double decided_until_s_ = 0;
  double spinning_delay_ = 0;      // the highest that a comparison saw while threads spun
  bool owns_while_brief_ = false;  // brief spins were enough for hardly a delay, in a comparison
  // A comparison takes turns with both ways to wait; one window of time each.
  int windows_left_ = 0;
  bool has_first_step_ = false;
  double window_start_s_ = 0;
  int64_t window_first_step_ = 0;
  std::array<double, 2> steps_per_s_ = {};  // sums over windows, by is_brief_
};

/// Watches the cores from a thread of its own, ten times a second, and chooses how OpenMP threads
/// wait, unless the user has chosen (chosen_wait_policy()). What is computed does not depend on it.
/// One a process.
class SharedCores {
 public:
  SharedCores();
  ~SharedCores();
  SharedCores(const SharedCores&) = delete;
  SharedCores& operator=(const SharedCores&) = delete;

  /// To be called after each training step; by these the ways to wait are compared.
  static void count_step() { steps_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void watch();
  void shorten_spins();
  void restore_spins();
  bool sleep(double seconds);

  static std::atomic<int64_t> steps_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;              // guarded by mutex_
  bool is_shared_ = false;          // guarded by mutex_
  std::vector<std::thread> teams_;  // the watching thread's; each holds OpenMP threads that sleep
  std::thread watcher_;
};

}  // namespace brim::device
