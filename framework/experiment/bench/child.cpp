#include "framework/experiment/bench/child.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "framework/base/stop.h"

namespace brim::experiment {
namespace fs = std::filesystem;
namespace {

constexpr int kLookEvery_ms = 500;

/// Waits for the process's end, at most kLookEvery_ms; a signal wakes it too.
void wait_a_while(int process_fd) {
  pollfd waited{.fd = process_fd, .events = POLLIN, .revents = 0};
  ::poll(&waited, 1, kLookEvery_ms);
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& arguments, const fs::path& log,
                   const std::function<void()>& meanwhile) {
  std::error_code ignored;
  fs::remove(log, ignored);
  ChildProcess child({.arguments = arguments, .log = log});
  for (;;) {
    if (auto end = child.try_wait()) return std::move(*end);
    if (stop_requested()) child.stop();
    wait_a_while(child.descriptor());
    meanwhile();
  }
}

Error error_of(const ChildEnd& end, const std::string& where) {
  constexpr std::array kKnown = {Exit::kBug,        Exit::kRecipe,   Exit::kData,
                                 Exit::kCheckpoint, Exit::kResource, Exit::kDistributed,
                                 Exit::kNumeric,    Exit::kStopped};
  Exit status = Exit::kBug;
  for (const Exit known : kKnown) {
    if (static_cast<int>(known) == end.status) status = known;
  }
  std::string message;
  for (const std::string& line : end.errors) {
    const size_t word_end = line.find("]: ");
    message += message.empty() ? "" : "\n";
    message += where + ": " + (word_end == std::string::npos ? line : line.substr(word_end + 3));
  }
  if (!message.empty()) return {status, message};
  if (end.status == 128 + SIGKILL) {
    return {Exit::kResource,
            "{}: the run was killed (SIGKILL), by hand or by the kernel for want of memory (see "
            "dmesg); if it was the latter, lower batch.micro",
            where};
  }
  if (end.status > 128) {
    return {Exit::kBug, "{}: the run was ended by signal {} ({})", where, end.status - 128,
            ::strsignal(end.status - 128)};
  }
  return {status, "{}: the run ended with status {}", where, end.status};
}

}  // namespace brim::experiment
