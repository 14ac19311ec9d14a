// Which of several failures came first, and what to say of it.
#pragma once

#include <string>
#include <vector>

namespace brim::launch {

/// A worker that died before the launcher ended the others.
struct Failure {
  int rank = 0;
  int pid = 0;
  int wait_status = 0;   // of waitpid()
  std::string reported;  // its error file's message
  std::string last_line;
  std::string log;  // its stderr's file, or empty
};

/// The status that a shell would report: the program's own, or 128 + signal.
int exit_status(int wait_status);

/// True for a worker that ended because it lost its peers: a consequence, not a cause.
bool is_secondary(int wait_status);

/// The failure to name, of at least one in the order they were noticed: the first that was killed
/// by a signal, else the first that isn't secondary, else the first.
const Failure& root_cause(const std::vector<Failure>& failures);

/// "rank 2 (pid 123) was killed by signal 11 (SIGSEGV); the last line of its stderr: …; its log:
/// …".
std::string describe(const Failure& failure);

/// The word for `error[…]`: the kind that the status stands for in Brim's table.
std::string kind_of(const Failure& failure);

}  // namespace brim::launch
