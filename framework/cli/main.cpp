// trainer: trains a recipe, or runs the subcommand named by the first argument.

#include <cstdio>
#include <cstdlib>

#include "framework/cli/program.h"

int main(int argc, char** argv) {
  const int status = brim::cli::main(argc, argv);
  // Everything of ours is destroyed by now; LibTorch's own statics take 0.2 s to go and free
  // nothing that the kernel wouldn't.
  std::fflush(nullptr);
  std::_Exit(status);
}
