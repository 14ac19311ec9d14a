// Runs a sweep's trials as processes of this program, several at the same time, until none is left
// or a stop is asked for. What it knows is in the store before anything follows from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/experiment/child_process.h"
#include "framework/sweep/devices.h"
#include "framework/sweep/store.h"

namespace brim::sweep {

class Runner {
 public:
  /// The caller holds the sweep's lock. `trusts_library`: the recipes' libraries may be loaded.
  Runner(Store& store, Devices& devices, bool trusts_library);

  /// kDone, or kStopped where a stop was asked for: trials under way have then saved their state.
  /// Throws Error(kResource) where the store can't be written, and what the first trial failed with
  /// where all have failed.
  Exit run();

 private:
  struct Running {
    size_t trial;
    Placement placement;
    double start_s;
    std::unique_ptr<experiment::ChildProcess> process;
  };

  void take_requests();
  void start_trials();
  void start(size_t index, Placement placement);
  void collect();
  void take_end(Trial& trial, const experiment::ChildEnd& end, bool was_told);
  void take_result(Trial& trial);
  void take_failure(Trial& trial, const Error& error, bool may_pass);
  void wait_a_while();
  void stop_all();
  void cancel_rest();
  void show() const;
  Exit finish() const;

  Store& store_;
  const Plan& plan_;
  bool trusts_library_;
  Devices& devices_;
  std::vector<Trial> trials_;
  std::vector<Running> running_;
  Request request_ = Request::kRun;
  bool is_waiting_ = false;  // for a device, and has said so
  std::optional<Error> first_failure_;
};

}  // namespace brim::sweep
