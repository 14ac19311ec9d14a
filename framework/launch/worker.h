// Starts one process of a launch.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "framework/launch/binding.h"
#include "framework/launch/guard.h"
#include "framework/launch/signals.h"

namespace brim::launch {

struct WorkerStart {
  std::vector<std::string> command;      // the program's path, then its arguments
  std::vector<std::string> environment;  // NAME=VALUE
  Cores cores;                           // empty: not bound
  int inherited_fd = -1;                 // the one descriptor that it gets besides 0, 1 and 2
};

/// Descriptors are the caller's to close, don't block, and are closed on exec.
struct StartedWorker {
  pid_t pid = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
};

/// Starts the program in a session of its own, stdin from /dev/null. It is killed when the calling
/// thread ends, so call from the main thread, and the guard kills what it starts. Throws
/// Error(kRecipe) where the kernel refuses the program, Error(kResource) for want of processes or
/// descriptors.
StartedWorker start_worker(const WorkerStart& start, const SignalPipe& signals, Guard& guard);

}  // namespace brim::launch
