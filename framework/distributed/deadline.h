// For calls that know no time limit, such as LibTorch's to a store whose process is stopped: where
// one does not return in time, the process ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "framework/base/error.h"

namespace brim::distributed {

/// Prints the error, leaves it in the launcher's file, and ends the process with its status,
/// whatever the other threads are at. Calls what before_end_of_process() was given first.
[[noreturn]] void end_process(const Error& error);

/// Replaces what was given before; nullptr: nothing. It may be called in any thread.
void before_end_of_process(std::function<void()> last);

class Deadline {
 public:
  /// Where it isn't destroyed within `limit`: end_process() with Error(kDistributed, message).
  Deadline(std::chrono::milliseconds limit, std::string message);

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace brim::distributed
