// LibTorch's callbacks around every operator that a thread and its backward passes call.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "framework/base/error.h"

namespace brim::train {

inline int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// While it lives, `Calls` is told by enter(call) and leave(call); with its inputs and outputs
/// where Calls::kNeedsTensors. One at a time in a process.
template <class Calls>
class CallRecorder {
 public:
  explicit CallRecorder(Calls& calls) {
    Calls* none = nullptr;
    if (!current().compare_exchange_strong(none, &calls)) {
      throw Error(Exit::kBug, "one recorder of operators runs in another");
    }
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&enter, &leave)
            .needsInputs(Calls::kNeedsTensors)
            .needsOutputs(Calls::kNeedsTensors)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~CallRecorder() {
    at::removeCallback(handle_);
    current() = nullptr;
  }
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

 private:
  /// Callbacks carry no state.
  static std::atomic<Calls*>& current() {
    static std::atomic<Calls*> calls = nullptr;
    return calls;
  }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
    if (Calls* calls = current()) calls->enter(call);
    return nullptr;
  }
  static void leave(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
    if (Calls* calls = current()) calls->leave(call);
  }

  at::CallbackHandle handle_ = 0;
};

}  // namespace brim::train
