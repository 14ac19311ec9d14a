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

}  // namespace

void write(Level level, const std::string& message) {
  std::lock_guard lock(mutex);
  if (only_warnings && level == Level::kInfo) return;
  const char* clear = live_line.empty() ? "" : kClearLine;
  const char* prefix = level == Level::kWarning ? "brim: warning: " : "brim: ";
  write_all(fmt::format("{}{}{}\n{}", clear, prefix, printable_lines(message), live_line));
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

}  // namespace brim::log
