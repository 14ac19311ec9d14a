#include "framework/launch/root_cause.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "framework/base/error.h"
#include "framework/launch/signals.h"

namespace brim::launch {

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

bool is_secondary(int wait_status) {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == static_cast<int>(Exit::kDistributed);
}

const Failure& root_cause(const std::vector<Failure>& failures) {
  const auto killed = std::find_if(failures.begin(), failures.end(), [](const Failure& failure) {
    return WIFSIGNALED(failure.wait_status);
  });
  if (killed != failures.end()) return *killed;
  const auto own = std::find_if(failures.begin(), failures.end(), [](const Failure& failure) {
    return !is_secondary(failure.wait_status);
  });
  return own != failures.end() ? *own : failures.front();
}

std::string describe(const Failure& failure) {
  std::string text = fmt::format("rank {} (pid {}) ", failure.rank, failure.pid);
  if (WIFSIGNALED(failure.wait_status)) {
    const int signal = WTERMSIG(failure.wait_status);
    text += fmt::format("was killed by signal {} ({})", signal, signal_name(signal));
    if (signal == SIGKILL) text += ", by hand or by the kernel for want of memory (see dmesg)";
  } else {
    text += fmt::format("exited with status {}", WEXITSTATUS(failure.wait_status));
  }
  if (!failure.reported.empty()) {
    text += "; its error: " + failure.reported;
  } else if (failure.last_line.starts_with("error[")) {
    text += "; its error: " + failure.last_line;
  } else if (!failure.last_line.empty()) {
    text += "; the last line of its stderr: " + failure.last_line;
  }
  if (!failure.log.empty()) text += "; its log: " + failure.log;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string kind_of(const Failure& failure) {
  if (WIFEXITED(failure.wait_status)) {
    const auto kind = static_cast<Exit>(WEXITSTATUS(failure.wait_status));
    if (kind == Exit::kRecipe || kind == Exit::kData || kind == Exit::kCheckpoint ||
        kind == Exit::kResource || kind == Exit::kNumeric) {
      return std::string(exit_name(kind));
    }
  }
  return std::string(exit_name(Exit::kDistributed));
}

}  // namespace brim::launch
