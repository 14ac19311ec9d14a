// The scripts by which shells complete `trainer`. They hold every word that they offer: pressing
// Tab starts no program.
#pragma once

#include <string>
#include <string_view>

namespace brim::cli {

/// The script for bash, zsh or fish: commands, options, the words that options take, the names of
/// bundled recipes, and recipe keys with their words. Throws UsageError for another shell.
std::string completion_script(std::string_view shell);

}  // namespace brim::cli
