// trainer help and trainer completion: what people and shells read about the commands.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/cli/commands.h"
#include "framework/cli/completion.h"
#include "framework/cli/help.h"

namespace brim::cli {
namespace {

int print_help(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  if (options.count("man") != 0) {
    const std::filesystem::path folder = options["man"].as<std::string>();
    make_folder(folder);
    write_man_pages(folder);
    return 0;
  }
  if (options.count("command") == 0) {
    fmt::print("{}", overview());
    return 0;
  }
  const auto given = options["command"].as<std::vector<std::string>>();
  const std::vector<std::string_view> words(given.begin(), given.end());
  const std::string name = fmt::format("{}", fmt::join(given, " "));
  const Command* command = find_command(words);
  if (command != nullptr && command->name == name) {
    fmt::print("{}", help_of(*command));
    return 0;
  }
  const std::string commands = overview(words[0]);
  if (words.size() > 1 || commands.find(":\n") == std::string::npos) {
    throw UsageError("there is no command '{}'; see trainer help", name);
  }
  fmt::print("{}", commands);
  return 0;
}

int print_completion(const cxxopts::ParseResult& options, std::span<char* const> /*argv*/) {
  fmt::print("{}", completion_script(
                       options.count("shell") != 0 ? options["shell"].as<std::string>() : ""));
  return 0;
}

}  // namespace

cxxopts::Options options_of(const Command& command) {
  cxxopts::Options options("trainer " + std::string(command.name));
  command.add_options(options);
  options.add_options()("h,help", "show this help");
  return options;
}

Command help_command() {
  return {.name = "help",
          .arguments = "[COMMAND]",
          .summary = "what a command does, with examples",
          .details = "Shows all commands, or the options and examples of one.",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("command", "the command, such as tune or data pack",
                                      cxxopts::value<std::vector<std::string>>(), "COMMAND")(
                    "man", "write the man pages of all commands into this folder instead",
                    cxxopts::value<std::string>(), "DIR");
              },
          .positional = {"command"},
          .examples = {{"trainer help data pack", "the options of trainer data pack"},
                       {"trainer help --man share/man/man1", "man pages, for man -M share/man"}},
          .run = print_help};
}

Command completion_command() {
  return {
      .name = "completion",
      .arguments = "SHELL",
      .summary = "completion for bash, zsh or fish",
      .details =
          "Prints the script by which a shell completes commands, options, recipes' names and "
          "the keys of --set.",
      .add_options =
          [](cxxopts::Options& options) {
            options.add_options()("shell", "whose script to print", cxxopts::value<std::string>(),
                                  "bash|zsh|fish");
          },
      .positional = {"shell"},
      .examples = {{"source <(trainer completion bash)",
                    "for this shell; put it in ~/.bashrc "
                    "for every one"},
                   {"trainer completion zsh > _trainer", "for zsh: keep it in a folder of $fpath"},
                   {"trainer completion fish > trainer.fish",
                    "for fish: keep it in ~/.config/fish/completions"}},
      .run = print_completion};
}

}  // namespace brim::cli
