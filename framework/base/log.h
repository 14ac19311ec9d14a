// Lines for people, on stderr: `brim: message`. Thread-safe; never interleaves within a line. What
// stderr doesn't take (a full disk, a reader that is gone) is lost, and nothing fails for it.
// Files for machines are telemetry's, not this one's.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace brim::log {

enum class Level { kInfo, kWarning };

/// Writes one line, first clearing a live progress line if one is on the terminal.
void write(Level level, const std::string& message);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

/// Writes `text` as it is.
void write_plain(std::string_view text);

/// From now on only warnings are written: what is not rank 0 says no more.
void write_only_warnings();

/// Shows `text` as the live last line of a terminal, over the one before; "" removes it.
void live(const std::string& text);

/// True when stderr is a terminal that can show a live line.
bool is_terminal();

/// `text` in bold red where stderr is a terminal and NO_COLOR (no-color.org) is not set; else as it
/// is.
std::string in_red(std::string_view text);

}  // namespace brim::log
