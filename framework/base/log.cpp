#include "framework/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "framework/base/printable.h"

namespace brim::log {
namespace {

std::mutex mutex;
bool only_warnings = false;
std::string live_line;  // what the terminal's last line shows now

constexpr const char* kClearLine = "\r\x1b[K";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

bool has_colours() {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal() && (no_color == nullptr || *no_color == '\0');
}

constexpr const char* kBoldRed = "\x1b[1;31m";
constexpr const char* kBoldYellow = "\x1b[1;33m";
constexpr const char* kPlain = "\x1b[0m";

std::string in_colour(std::string_view text, const char* colour) {
  return has_colours() ? fmt::format("{}{}{}", colour, text, kPlain) : std::string(text);
}

}  // namespace

void write(Level level, const std::string& message) {
  std::lock_guard lock(mutex);
  if (only_warnings && level == Level::kInfo) return;
  const char* clear = live_line.empty() ? "" : kClearLine;
  const std::string label =
      level == Level::kWarning ? in_colour("warning:", kBoldYellow) + " " : std::string();
  write_all(fmt::format("{}brim: {}{}\n{}", clear, label, printable_lines(message), live_line));
}

void write_plain(std::string_view text) {
  std::lock_guard lock(mutex);
  write_all(text);
}

void write_only_warnings() {
  std::lock_guard lock(mutex);
  only_warnings = true;
}

void live(const std::string& shown) {
  const std::string text = printable(shown);
  std::lock_guard lock(mutex);
  if (text == live_line) return;
  write_all(kClearLine + text);
  live_line = text;
}

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

std::string in_red(std::string_view text) { return in_colour(text, kBoldRed); }

}  // namespace brim::log
