// Errors that reach a user: each has a kind, and the kind decides the exit status.
// A message says what was expected, what was found, where, and what to do.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace brim {

/// Exit statuses of every Brim program; errors of one kind leave with that kind's status.
enum class Exit : int {
  kDone = 0,
  kBug = 1,
  kRecipe = 2,
  kData = 3,
  kCheckpoint = 4,
  kResource = 5,
  kDistributed = 6,
  kNumeric = 7,
  kStopped = 75,
};

/// "recipe" for kRecipe, and so on.
std::string_view exit_name(Exit status);

/// An error with its exit status. what() is the message without the `error[…]: ` prefix; it may
/// hold several lines, one problem each.
class Error : public std::runtime_error {
 public:
  Error(Exit status, const std::string& message)
      : std::runtime_error(message), kind_(exit_name(status)), status_(status) {}

  template <class... Args>
  Error(Exit status, fmt::format_string<Args...> format, Args&&... args)
      : Error(status, fmt::format(format, std::forward<Args>(args)...)) {}

  Exit status() const { return status_; }
  /// The word in `error[word]: …`.
  std::string_view kind() const { return kind_; }

 protected:
  std::string_view kind_;

 private:
  Exit status_;
};

/// A wrong command line: leaves with the status of a wrong recipe, and is labelled error[usage].
class UsageError : public Error {
 public:
  template <class... Args>
  explicit UsageError(fmt::format_string<Args...> format, Args&&... args)
      : Error(Exit::kRecipe, fmt::format(format, std::forward<Args>(args)...)) {
    kind_ = "usage";
  }
};

/// "No space left on device" for the current errno or the one given.
std::string errno_text(int code);

/// The exception that is being handled, whatever it is, as the Error that users read: exhausted
/// memory and what the system refuses, to libraries too, are kResource, what else is no Error is
/// kBug, without LibTorch's backtrace.
Error current_error();

/// From here on what run_program() says of a bug allows for one in a component of the user's own:
/// to be called before code that is not Brim's is registered.
void expect_own_components();

/// Prints each line of the message to stderr as `error[kind]: line`.
void print_error(const Error& error);

/// Writes out what waits for standard output: for a command with many results, after each. Throws
/// Error(kResource) where that fails, and where the reader has gone away what run_program() takes
/// for SIGPIPE.
void flush_output();

/// Runs a program's body and turns what it throws, or from then on a thread or a destructor, into a
/// printed error and an exit status. Anything that is not a brim::Error, even no std::exception,
/// counts as a bug, except exhausted memory. Under torchrun or trainrun the error is also left in
/// the launcher's file (framework/base/torchelastic.h).
int run_program(const std::function<int(int, char**)>& body, int argc, char** argv);

}  // namespace brim
