// A subcommand of `trainer`: what runs it, and what its help, man page and completion say of it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/cli/options.h"

namespace brim::cli {

/// A line that can be copied from the help, and what it does.
struct Example {
  std::string_view line;
  std::string_view purpose;
};

struct Command {
  std::string_view name;       ///< what follows `trainer`: "train", "data pack"
  std::string_view arguments;  ///< as in a usage line: "RECIPE"
  std::string_view summary;    ///< half a line, for the list of commands
  std::string_view details;    ///< the sentences of its own help
  /// All but --help.
  void (*add_options)(cxxopts::Options&);
  /// Names of the options that words without a dash are values of, in their order.
  std::vector<std::string> positional;
  std::vector<Example> examples;
  /// `argv` is the whole command line, the program's name first. Returns the exit status; throws
  /// Error otherwise.
  int (*run)(const cxxopts::ParseResult& options, std::span<char* const> argv);
};

/// Commands that belong together.
struct CommandGroup {
  std::string_view title;
  std::vector<Command> commands;
};

/// Every command, in the order of the help.
const std::vector<CommandGroup>& command_groups();

/// The command whose name these words begin with; null where none's does.
const Command* find_command(std::span<const std::string_view> words);

/// The command's options with --help, ready to parse.
cxxopts::Options options_of(const Command& command);

}  // namespace brim::cli
