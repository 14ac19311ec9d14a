#include "framework/base/error.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>

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

std::string errno_text(int code) { return std::strerror(code); }

void print_error(const Error& error) {
  log::live("");
  std::istringstream lines(error.what());
  for (std::string line; std::getline(lines, line);) {
    fmt::print(stderr, "error[{}]: {}\n", exit_name(error.status()), printable_lines(line));
  }
  std::fflush(stderr);
}

namespace {

int report(const Error& error) {
  print_error(error);
  const auto status = static_cast<int>(error.status());
  write_torchelastic_error(fmt::format("error[{}]: {}", exit_name(error.status()), error.what()),
                           status);
  return status;
}

}  // namespace

int run_program(int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(Exit::kResource, std::string("out of memory on the host")));
  } catch (const std::exception& error) {
    return report(Error(Exit::kBug, "{} (this is a bug in Brim; please report it)", error.what()));
  }
}

}  // namespace brim
