// Streams and events of the simulated GPU: each stream is a thread that does its work in order and
// late, so that whoever reads what another stream has not written yet finds nothing there.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>

namespace brim::simulated {

/// Throws where work on a stream has thrown, as all calls do after an assertion on a device.
void check_device();

/// A moment on a stream: done once what was enqueued before it is.
class Moment {
 public:
  void pass();
  bool is_past() const;
  void wait() const;
  /// When it passed.
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable passed_;
  bool is_past_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// record() and synchronize() throw as check_device() does.
class Stream {
 public:
  explicit Stream(uint64_t seed);

  void enqueue(std::function<void()> work);
  /// Work that begins after a random delay of up to BRIM_SIMULATED_DELAY_US, 300 by default.
  void enqueue_late(std::function<void()> work);
  std::shared_ptr<const Moment> record();
  /// What is enqueued from now on begins after the moment.
  void wait_for(std::shared_ptr<const Moment> moment);
  /// The host waits until all that was enqueued is done.
  void synchronize();
  bool is_idle();

 private:
  [[noreturn]] void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_busy_ = false;
  std::mt19937_64 random_;
};

/// They live as long as the process. 0 is the default stream.
Stream& stream(c10::StreamId id);
/// One after another of the 32 that there are beside it.
c10::StreamId next_stream();
/// This thread's.
c10::StreamId& current_stream();
/// All that have been used.
void synchronize_all();

}  // namespace brim::simulated
