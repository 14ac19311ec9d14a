// What /proc tells about other processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace brim::launch {

/// Children of this process but for `except`, orphans that came to it as their subreaper among
/// them. Dead ones that were not waited for count.
std::vector<pid_t> children(const std::vector<pid_t>& except);

/// Ends and waits for all of children(except), and what they leave behind in turn: SIGTERM, then
/// SIGKILL after `grace_s`; SIGKILL at once for 0. Gives up after 5 s more; returns those still
/// there, which the kernel holds in an uninterruptible wait.
std::vector<pid_t> end_children(double grace_s, const std::vector<pid_t>& except);

/// "process 123 (python3)": who listens on a TCP port of this machine; "" where that can't be seen.
std::string listener_of(int port);

}  // namespace brim::launch
