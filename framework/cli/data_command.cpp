// trainer data pack|inspect|bench|tokenize: what is done with data before training.

#include <fmt/format.h>

#include <string_view>

#include "framework/base/error.h"
#include "framework/cli/commands.h"

namespace brim::cli {
namespace {

constexpr const char* kUsage =
    "usage: trainer data pack --from FOLDER --to FOLDER   a folder for each class to tar shards\n"
    "       trainer data inspect --from PATH              counts, sizes, classes, broken images\n"
    "       trainer data bench --recipe FILE              how fast a recipe's data can be loaded\n"
    "       trainer data tokenize FILE… --tokenizer T     text to token files\n"
    "Each has more options: --help.\n";

}  // namespace

int data_command(int argc, char** argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "pack") return data_pack(argc - 1, argv + 1);
  if (action == "inspect") return data_inspect(argc - 1, argv + 1);
  if (action == "bench") return data_bench(argc - 1, argv + 1);
  if (action == "tokenize") return data_tokenize(argc - 1, argv + 1);
  if (action == "--help" || action == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  throw Error(Exit::kRecipe, "trainer data: expected pack, inspect, bench or tokenize, found '{}'",
              action);
}

}  // namespace brim::cli
