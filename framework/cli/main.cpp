// trainer: trains a recipe, or runs the subcommand named by the first argument.

#include <c10/util/Exception.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/nearest.h"
#include "framework/base/stop.h"
#include "framework/cli/commands.h"
#include "framework/data/config.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/recipe/read.h"
#include "framework/train/task.h"
#include "models/register.h"

namespace brim::cli {
namespace {

struct Command {
  std::string_view name;
  int (*run)(int, char**);
};

constexpr std::array<Command, 12> kCommands = {{{"bench", bench_command},
                                                {"compare", compare_command},
                                                {"data", data_command},
                                                {"devices", devices_command},
                                                {"doctor", doctor_command},
                                                {"eval", eval_command},
                                                {"export", export_command},
                                                {"predict", predict_command},
                                                {"recipe", recipe_command},
                                                {"report", report_command},
                                                {"tune", tune_command},
                                                {"version", version_command}}};

void register_parts() {
  models::register_all();
  data::register_sources();
  data::register_samplers();
  optim::register_optimizers();
  optim::register_schedules();
  train::register_tasks();
}

int run(int argc, char** argv) {
  register_parts();
  install_stop_handlers();
  if (argc < 2 || argv[1][0] == '-') return train_command(argc, argv);

  const std::string_view word = argv[1];
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command.name == word) return command.run(argc - 1, argv + 1);
    names.push_back(command.name);
  }
  const std::string near = nearest(word, names);
  throw Error(Exit::kRecipe, "unknown command '{}'; {}", word,
              near.empty() ? "see trainer --help" : "did you mean '" + near + "'?");
}

}  // namespace
}  // namespace brim::cli

namespace {

/// LibTorch's exhausted memory, on the CPU as on a GPU, is a user's matter and no bug.
int main_body(int argc, char** argv) {
  try {
    return brim::cli::run(argc, argv);
  } catch (const c10::OutOfMemoryError& error) {
    throw brim::Error(brim::Exit::kResource, "{}; lower batch.micro",
                      error.what_without_backtrace());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int status = brim::run_program(main_body, argc, argv);
  // Everything of ours is destroyed by now; LibTorch's own statics take 0.2 s to go and free
  // nothing that the kernel wouldn't.
  std::fflush(nullptr);
  std::_Exit(status);
}
