// Signals as events of a loop: handlers write to a pipe, whose end is polled.
#pragma once

#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace brim::launch {

/// While it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD come out of take(), and
/// SIGPIPE and SIGXFSZ are ignored (the write fails instead); then the former handlers are back.
/// What was ignored stays so (SIGHUP under nohup), except SIGTERM. One at a time in a process.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  /// Readable when a signal has come.
  int fd() const { return ends_[0]; }
  /// The signals since the last call, in order; does not wait.
  std::vector<int> take();
  /// In a child between fork and exec: dispositions as they were; a handler becomes the default.
  void restore_in_child() const;

 private:
  int ends_[2] = {-1, -1};
  std::vector<std::pair<int, struct sigaction>> former_;
};

/// "SIGSEGV"; "number 40" for one without a name.
std::string signal_name(int signal);

}  // namespace brim::launch
