// The rules that end a run which is under way: its hours are over, quiet hours begin, or what it
// yields to has come. Such a run stops as by a signal, saved after its step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "framework/base/units.h"
#include "framework/site/limits.h"

namespace brim::site {

enum class StopCause { kNone, kHours, kQuietHours, kYields };

struct StopReason {
  StopCause cause = StopCause::kNone;
  std::string why;  // naming the rule
};

/// What ends a run that has held the devices for so long. `gpus` are as NVML shows them.
StopReason find_stop_reason(const Limits& limits, const Devices& devices, double held_s,
                            const std::tm& local, const Gpus& gpus);

/// Looks once a second, on a thread of its own that calls `act` with the first reason found.
class Watch {
 public:
  Watch(const Limits& limits, Devices devices, std::function<void(const StopReason&)> act);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// That of the reason which `act` was called with.
  StopCause cause() const { return cause_; }
  /// The reason at this moment, if there is one.
  StopReason look(const Gpus& gpus) const;

 private:
  void run();

  const Limits& limits_;
  const Devices devices_;
  const std::function<void(const StopReason&)> act_;
  const double start_s_ = now_s();
  std::atomic<StopCause> cause_ = StopCause::kNone;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace brim::site
