// Runs a sweep's trials as processes of this program, several at the same time, until none is left
// to begin or a stop is asked for. Other runners may work on the same sweep: each trial is claimed
// in the store first, and what a runner knows is there before anything follows from it.
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

/// In what the trials' recipes bring with them: libraries and programs.
struct Trust {
  bool is_given;   // they may be loaded and run
  bool is_needed;  // --resume asks for --trust-library
};

class Runner {
 public:
  /// The caller has joined the sweep.
  Runner(Store& store, Devices& devices, Trust trust);

  /// kDone, or kStopped where a stop was asked for: trials under way have then saved their state.
  /// Throws Error(kResource) where the store can't be written, and what the first trial failed with
  /// where all have failed.
  Exit run();

 private:
  struct Running {
    Claim claim;
    Placement placement;
    double start_s;
    std::unique_ptr<experiment::ChildProcess> process;
  };

  void take_requests();
  void start_trials();
  void start(Claim claim, Placement placement);
  void collect();
  void restore_recipe(const Trial& trial);
  void take_end(Trial& trial, const experiment::ChildEnd& end, bool was_told);
  void take_result(Trial& trial);
  void take_failure(Trial& trial, const Error& error, bool may_pass);
  void wait_a_while();
  void stop_all();
  bool is_over();
  void show() const;
  Exit finish() const;

  Store& store_;
  const Plan& plan_;
  Trust trust_;
  Devices& devices_;
  std::vector<Trial> trials_;
  std::vector<Running> running_;
  Request request_ = Request::kRun;
  bool is_waiting_ = false;  // for a device, and has said so
  std::optional<Error> first_failure_;
};

}  // namespace brim::sweep
