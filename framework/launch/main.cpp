// trainrun: starts the ranks of a training run on one node, or on each of several.

#include <cstdio>
#include <string>
#include <variant>

#include "framework/base/error.h"
#include "framework/launch/launcher.h"
#include "framework/launch/options.h"

namespace {

int run(int argc, char** argv) {
  const auto parsed = brim::launch::parse_options(argc, argv);
  if (const auto* text = std::get_if<std::string>(&parsed)) {
    std::fputs(text->c_str(), stdout);
    return 0;
  }
  return brim::launch::launch(std::get<brim::launch::LaunchOptions>(parsed));
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(run, argc, argv); }
