// Starts the ranks of one node, watches over them, starts them again, and names who failed first.
// It is what `trainrun` runs, and `trainer --devices 0,1` with itself as the program.
#pragma once

#include "framework/launch/options.h"

namespace brim::launch {

/// Runs the ranks to their end and returns the exit status: 0; 75 for a requested stop with state
/// saved; else that of the first rank to fail, 128 + signal where it was killed. All of them, and
/// what they started, are gone then.
/// Call from the main thread of a process without other children: it becomes the subreaper of its
/// descendants and waits for any child. SIGINT, SIGTERM and SIGHUP are passed on, the latter as
/// SIGTERM; a second one kills at once. Throws Error(kRecipe), Error(kResource).
int launch(const LaunchOptions& options);

}  // namespace brim::launch
