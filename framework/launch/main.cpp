// trainrun: starts the ranks of a training run on one node, or on each of several.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "framework/base/error.h"
#include "framework/launch/launcher.h"
#include "framework/launch/options.h"

namespace {

/// Descriptors 0 to 2 must be taken, or a pipe of ours would be one of them.
void fill_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= 2);
  ::close(fd);
}

int run(int argc, char** argv) {
  const auto options = brim::launch::parse_options(argc, argv);
  if (!options) {
    std::fputs(brim::launch::help_text().c_str(), stdout);
    return 0;
  }
  return brim::launch::launch(*options);
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  return brim::run_program(run, argc, argv);
}
