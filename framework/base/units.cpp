#include "framework/base/units.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

namespace brim {

double now_s() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double process_age_s() {
  // proc(5): field 22 of /proc/self/stat is the start in clock ticks after boot. Field 2, the
  // name in parentheses, may hold spaces.
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  std::timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const double start_s =
      std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(boot.tv_sec) + 1e-9 * static_cast<double>(boot.tv_nsec) - start_s;
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // From 1023.95 on one decimal would round up to "1024.0".
  while (std::abs(value) >= (unit == 0 ? 1024.0 : 1023.95) && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!(std::abs(seconds) < 1e15)) return "unknown";  // also where it is not a number
  if (seconds < 0.1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
}

std::string format_count(int64_t count) {
  std::string digits = fmt::format("{}", count);
  const int sign = count < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > sign; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string format_plural(int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", format_count(count), noun)
                        : fmt::format("{} {}", format_count(count), plural);
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", std::isnan(value) ? std::abs(value) : value);
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 9999.5 && size < 1e15) return format_count(std::llround(value));
  if (size >= 1e15 || size < 1e-6) return fmt::format("{:.4g}", value);
  // As many decimals as leave four significant digits, less the zeros at their end.
  const int decimals = std::max(0, 3 - static_cast<int>(std::floor(std::log10(size))));
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 40> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S%z", &local);
  return {text.data(), size};
}

}  // namespace brim
