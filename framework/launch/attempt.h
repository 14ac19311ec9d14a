// One start of all ranks of this node, from fork to the last process gone.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "framework/launch/binding.h"
#include "framework/launch/guard.h"
#include "framework/launch/options.h"
#include "framework/launch/output.h"
#include "framework/launch/root_cause.h"
#include "framework/launch/run_files.h"
#include "framework/launch/signals.h"

namespace brim::launch {

struct AttemptResult {
  int status = 0;
  std::string kind;          // the word for `error[…]`
  std::string error;         // why it failed; empty where it didn't
  bool was_stopped = false;  // on request: not to be started again
};

/// What the attempts of a launch share.
struct Shared {
  const LaunchOptions& options;
  const std::string& run_id;
  const RunFiles& files;
  const std::vector<Cores>& cores;             // of each local rank
  const std::vector<pid_t>& earlier_children;  // of this process, which are no worker's
  Guard& guard;
  SignalPipe& signals;
  Sink& out;
  Sink& err;
};

/// Throws as launch() does; no process is left then either.
AttemptResult run_attempt(const Shared& shared, int restarts);

}  // namespace brim::launch
