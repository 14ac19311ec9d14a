// trainrun: starts the ranks of a training run on one node, or on each of several.

#include <cstdio>

#include "framework/base/error.h"
#include "framework/launch/launcher.h"
#include "framework/launch/options.h"

namespace {

int run(int argc, char** argv) {
  const auto options = brim::launch::parse_options(argc, argv);
  if (!options) {
    std::fputs(brim::launch::help_text().c_str(), stdout);
    return 0;
  }
  return brim::launch::launch(*options);
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(run, argc, argv); }
