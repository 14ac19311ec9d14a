#include "framework/cli/program.h"

#include <c10/util/Exception.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/nearest.h"
#include "framework/base/stop.h"
#include "framework/cli/all_parts.h"
#include "framework/cli/commands.h"
#include "framework/device/shared_cores.h"

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

int run(int argc, char** argv) {
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

/// Of the program that main() is: run_program() takes a plain function.
void (*own_parts)() = nullptr;

/// LibTorch's exhausted memory, on the CPU as on a GPU, is a user's matter and no bug.
int body(int argc, char** argv) {
  try {
    register_parts();
    if (own_parts != nullptr) own_parts();
    install_stop_handlers();
    const device::SharedCores cores;
    return run(argc, argv);
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(Exit::kResource,
                "{}. Choose a smaller model, a smaller batch.micro or smaller samples, or give the "
                "job more memory (device.memory_gib)",
                error.what_without_backtrace());
  }
}

}  // namespace

void register_parts() { register_all_parts(); }

int main(int argc, char** argv, void (*register_own)()) {
  own_parts = register_own;
  return run_program(body, argc, argv);
}

}  // namespace brim::cli
