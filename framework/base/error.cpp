#include "framework/base/error.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>

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

std::string errno_text(int code) { return std::strerror(code); }

void print_error(const Error& error) {
  std::istringstream lines(error.what());
  for (std::string line; std::getline(lines, line);) {
    fmt::print(stderr, "error[{}]: {}\n", exit_name(error.status()), line);
  }
  std::fflush(stderr);
}

int run_program(int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const Error& error) {
    print_error(error);
    return static_cast<int>(error.status());
  } catch (const std::bad_alloc&) {
    print_error(Error(Exit::kResource, std::string("out of memory on the host")));
    return static_cast<int>(Exit::kResource);
  } catch (const std::exception& error) {
    print_error(Error(Exit::kBug, "{} (this is a bug in Brim; please report it)", error.what()));
    return static_cast<int>(Exit::kBug);
  }
}

}  // namespace brim
