#include "framework/base/error.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>
#include <typeinfo>

#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/torchelastic.h"

namespace brim {

std::string_view exit_name(Exit status) {
  switch (status) {
    case Exit::kDone:
      return "done";
    case Exit::kBug:
      return "bug";
    case Exit::kRecipe:
      return "recipe";
    case Exit::kData:
      return "data";
    case Exit::kCheckpoint:
      return "checkpoint";
    case Exit::kResource:
      return "resource";
    case Exit::kDistributed:
      return "distributed";
    case Exit::kNumeric:
      return "numeric";
    case Exit::kStopped:
      return "stopped";
  }
  return "bug";
}

std::string errno_text(int code) {
  const bool is_full = code == ENOSPC || code == EDQUOT;
  return fmt::format("{}{}", std::strerror(code), is_full ? " (free some space there)" : "");
}

void print_error(const Error& error) {
  log::live("");
  std::istringstream lines(error.what());
  for (std::string line; std::getline(lines, line);) {
    log::write_plain(fmt::format("{} {}\n", log::in_red(fmt::format("error[{}]:", error.kind())),
                                 printable_lines(line)));
  }
}

namespace {

/// Descriptors 0 to 2 must be taken, or a file of ours would get what is written to one of them.
void fill_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
}

/// What the system refuses where no one expected it: most often a thread, or room for the output.
Error of_system(const std::system_error& error) {
  if (error.code() == std::errc::resource_unavailable_try_again) {
    return {Exit::kResource,
            "cannot start a thread: {}. Raise the limit on processes (ulimit -u), or lower "
            "data.workers",
            error.code().message()};
  }
  return {Exit::kResource, "{}", error.what()};
}

/// As if SIGPIPE, which is ignored, had ended the program: the reader of its output wants no more.
constexpr int kReaderLeft = 128 + SIGPIPE;

int report(const Error& error) {
  print_error(error);
  const auto status = static_cast<int>(error.status());
  if (*error.what() == '\0') return status;  // another rank's: whoever threw it has seen to it
  write_torchelastic_error(fmt::format("error[{}]: {}", error.kind(), error.what()), status);
  return status;
}

/// Where LibTorch's messages go over to what its developers read.
constexpr std::string_view kBacktrace = "\nException raised from";

std::atomic<bool> has_own_components = false;

/// "int" for an exception that is one.
std::string type_of_current() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "unknown";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  return name ? name.get() : type->name();
}

/// Reports the exception that is handled; the exit status.
int report_current() {
  try {
    throw;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(current_error());
  } catch (const std::system_error& error) {
    return error.code() == std::errc::broken_pipe ? kReaderLeft : report(current_error());
  } catch (...) {
    const Error error = current_error();
    if (error.status() != Exit::kBug) return report(error);
    return report(Error(Exit::kBug, "{} ({})", error.what(),
                        has_own_components ? "this is a bug in Brim, or in a component of your "
                                             "own; please report it with the recipe"
                                           : "this is a bug in Brim; please report it"));
  }
}

/// For what no one can catch: an exception in a thread, or in a destructor. A GPU's error comes
/// back from every call that follows, so that freeing memory throws while the first one unwinds.
[[noreturn]] void end_of_uncaught() {
  if (std::current_exception() == nullptr) std::abort();
  std::_Exit(report_current());
}

}  // namespace

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {Exit::kResource, std::string("out of memory on the host")};
  } catch (const std::system_error& error) {
    return of_system(error);
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    if (what.find("Too many open files") != std::string_view::npos) {  // a library's own words
      return {Exit::kResource,
              "this process may open no more files: connections to ranks, workers and files of "
              "data count. Raise the limit (ulimit -n)"};
    }
    return {Exit::kBug, std::string(what.substr(0, what.find(kBacktrace)))};
  } catch (...) {
    return {Exit::kBug, "an exception that is no std::exception, of type {}", type_of_current()};
  }
}

void expect_own_components() { has_own_components = true; }

void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  if (errno == EPIPE) throw std::system_error(errno, std::generic_category());
  throw Error(Exit::kResource, "standard output can't be written: {}", errno_text(errno));
}

int run_program(const std::function<int(int, char**)>& body, int argc, char** argv) {
  fill_standard_streams();
  std::set_terminate(end_of_uncaught);
  try {
    const int status = body(argc, argv);
    flush_output();
    return status;
  } catch (...) {
    return report_current();
  }
}

}  // namespace brim
