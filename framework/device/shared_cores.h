// Training beside other work on the same cores. libgomp's threads spin for milliseconds where a
// parallel loop ends; on cores that others use, that time is taken from the thread they wait for,
// and a step takes ten times as long. libgomp itself spins briefly once a process has more OpenMP
// threads than cores, so that state is brought about while threads of this process wait for a core.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace brim::device {

/// Watches the cores from a thread of its own, ten times a second, and chooses how OpenMP threads
/// wait, unless the user has chosen (chosen_wait_policy()). What is computed does not depend on it.
/// One a process.
class SharedCores {
 public:
  SharedCores();
  ~SharedCores();
  SharedCores(const SharedCores&) = delete;
  SharedCores& operator=(const SharedCores&) = delete;

 private:
  void watch();
  void shorten_spins();
  void restore_spins();
  bool sleep(double seconds);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;              // guarded by mutex_
  bool is_shared_ = false;          // guarded by mutex_
  std::vector<std::thread> teams_;  // the watching thread's; each holds OpenMP threads that sleep
  std::thread watcher_;
};

}  // namespace brim::device
