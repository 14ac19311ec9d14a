// What `trainer` says of its commands: help of at most 80 columns, and man pages.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/cli/command.h"

namespace brim::cli {

/// An option as help, man page and completion say it.
struct OptionText {
  std::string name;   // without dashes
  std::string flags;  // "-h, --help", "--set KEY=VALUE"
  std::string what;
  bool takes_value = false;
  std::string value;  // "KEY=VALUE"; words to type are in small letters: "auto|PATH"
};

/// Apart: the options that positional words are values of.
struct OptionTexts {
  std::vector<OptionText> positional;
  std::vector<OptionText> named;
};

OptionTexts texts_of(const Command& command);

/// The list of all commands, or of those whose first word is `word`.
std::string overview(std::string_view word = "");

/// Usage, arguments, options and examples of one command.
std::string help_of(const Command& command);

/// Writes trainer.1 and a page for each command (trainer-data-pack.1) into an existing folder.
void write_man_pages(const std::filesystem::path& folder);

}  // namespace brim::cli
