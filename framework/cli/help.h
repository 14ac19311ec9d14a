// What `trainer` says of its commands: help of at most 80 columns, man pages, shell completion.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "framework/cli/command.h"

namespace brim::cli {

/// The list of all commands, or of those whose first word is `word`.
std::string overview(std::string_view word = "");

/// Usage, arguments, options and examples of one command.
std::string help_of(const Command& command);

/// Writes trainer.1 and a page for each command (trainer-data-pack.1) into an existing folder.
void write_man_pages(const std::filesystem::path& folder);

/// The script that a shell reads to complete `trainer`. Throws UsageError for a shell other than
/// bash, zsh and fish.
std::string completion_script(std::string_view shell);

}  // namespace brim::cli
