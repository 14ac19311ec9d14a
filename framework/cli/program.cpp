#include "framework/cli/program.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/base/words.h"
#include "framework/cli/commands.h"
#include "framework/cli/help.h"
#include "framework/cli/register_all.h"
#include "framework/device/memory/advice.h"
#include "framework/device/memory/memory.h"
#include "framework/device/shared_cores.h"

namespace brim::cli {
namespace {

size_t count_words(std::string_view name) {
  return 1 + static_cast<size_t>(std::ranges::count(name, ' '));
}

/// "data" where there are commands "data pack" and "data inspect": their last words, else nothing.
std::vector<std::string_view> actions_of(std::string_view word) {
  std::vector<std::string_view> actions;
  for (const CommandGroup& group : command_groups()) {
    for (const Command& command : group.commands) {
      const bool is_under = command.name.starts_with(word) && command.name.size() > word.size() &&
                            command.name[word.size()] == ' ';
      if (is_under) actions.push_back(command.name.substr(word.size() + 1));
    }
  }
  return actions;
}

[[noreturn]] void refuse(std::string_view word, std::string_view second) {
  if (const auto actions = actions_of(word); !actions.empty()) {
    std::string list;
    for (const auto action : actions) {
      list += (list.empty() ? "" : action == actions.back() ? " or " : ", ") + std::string(action);
    }
    const std::string found = second.empty() ? "none" : fmt::format("'{}'", second);
    throw UsageError("trainer {}: expected {}, found {}; see trainer help {}", word, list, found,
                     word);
  }
  std::error_code ignored;
  if (word.ends_with(".toml") || std::filesystem::exists(word, ignored)) {
    throw UsageError("unknown command '{}'; to train a recipe: trainer train {}", word, word);
  }
  std::vector<std::string_view> names;
  for (const CommandGroup& group : command_groups()) {
    for (const Command& command : group.commands) {
      names.push_back(command.name.substr(0, command.name.find(' ')));
    }
  }
  const std::string near = nearest(word, names);
  throw UsageError("unknown command '{}'; {}", word,
                   near.empty() ? "see trainer help" : "did you mean '" + near + "'?");
}

/// A command, and how many words name it; null where the overview has been printed instead.
struct Called {
  const Command* command = nullptr;
  size_t words = 0;
};

Called find_called(const std::vector<std::string_view>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    fmt::print("{}", overview());
    return {};
  }
  const auto named = [](std::string_view name) { return find_command(std::span(&name, 1)); };
  if (words[0] == "--version") return {named("version"), 1};
  if (words[0].starts_with('-')) return {named("train"), 0};
  if (const Command* command = find_command(words)) return {command, count_words(command->name)};
  const bool asks = words.size() > 1 && (words[1] == "--help" || words[1] == "-h");
  if (!asks || actions_of(words[0]).empty()) refuse(words[0], words.size() > 1 ? words[1] : "");
  fmt::print("{}", overview(words[0]));
  return {};
}

}  // namespace

const std::vector<CommandGroup>& command_groups() {
  static const std::vector<CommandGroup> kGroups = {
      {"Train", {train_command(), tune_command(), plan_command(), audit_command()}},
      {"Many trials",
       {sweep_command(), sweep_status_command(), sweep_pause_command(), sweep_resume_command(),
        sweep_cancel_command(), sweep_add_command()}},
      {"Use a trained model", {eval_command(), predict_command(), export_command()}},
      {"See where time and memory go",
       {doctor_command(), profile_command(), report_command(), watch_command(), bench_command(),
        compare_command(), devices_command(), history_command()}},
      {"Recipes",
       {recipe_check_command(), recipe_show_command(), recipe_schema_command(),
        recipe_reference_command()}},
      {"Data",
       {data_inspect_command(), data_pack_command(), data_tokenize_command(),
        data_bench_command()}},
      {"This program", {help_command(), completion_command(), version_command()}}};
  return kGroups;
}

const Command* find_command(std::span<const std::string_view> words) {
  const Command* of_one_word = nullptr;
  for (const CommandGroup& group : command_groups()) {
    for (const Command& command : group.commands) {
      const size_t space = command.name.find(' ');
      const bool is_pair = space != std::string_view::npos;
      if (words.empty() || command.name.substr(0, space) != words[0]) continue;
      if (!is_pair) of_one_word = &command;
      if (is_pair && words.size() > 1 && command.name.substr(space + 1) == words[1]) {
        return &command;
      }
    }
  }
  return of_one_word;
}

void register_components() { register_all_components(); }

int main(int argc, char** argv, void (*register_own)()) {
  const auto body = [register_own](int count, char** words) {
    try {
      install_stop_handlers();
      register_components();
      if (register_own != nullptr) {
        expect_own_components();
        register_own();
      }
      const device::SharedCores cores;
      const std::span<char* const> line(words, static_cast<size_t>(count));
      const Called called = find_called({line.begin() + 1, line.end()});
      if (called.command == nullptr) return 0;
      cxxopts::Options options = options_of(*called.command);
      const auto parsed =
          parse_options(options, called.command->positional, line.subspan(called.words));
      if (parsed.count("help") == 0) return called.command->run(parsed, line);
      fmt::print("{}", help_of(*called.command));
      return 0;
    } catch (const c10::Error& thrown) {
      const Error error = device::as_error(thrown);
      if (error.status() == Exit::kResource) {
        throw Error(Exit::kResource,
                    "{}. Choose a smaller model, a smaller batch.micro or smaller samples, or {}",
                    error.what(), device::more_memory());
      }
      expect_own_components();  // LibTorch says what is wrong with a shape, not whose it is
      throw;
    }
  };
  return run_program(body, argc, argv);
}

}  // namespace brim::cli
