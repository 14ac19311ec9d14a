#include "framework/base/log.h"

#include <unistd.h>

#include <cstdio>
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

}  // namespace

void write(Level level, const std::string& message) {
  std::lock_guard lock(mutex);
  if (only_warnings && level == Level::kInfo) return;
  const char* clear = live_line.empty() ? "" : kClearLine;
  const char* prefix = level == Level::kWarning ? "brim: warning: " : "brim: ";
  fmt::print(stderr, "{}{}{}\n{}", clear, prefix, printable_lines(message), live_line);
  std::fflush(stderr);
}

void write_only_warnings() {
  std::lock_guard lock(mutex);
  only_warnings = true;
}

void live(const std::string& shown) {
  const std::string text = printable(shown);
  std::lock_guard lock(mutex);
  if (text == live_line) return;
  fmt::print(stderr, "{}{}", kClearLine, text);
  std::fflush(stderr);
  live_line = text;
}

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace brim::log
