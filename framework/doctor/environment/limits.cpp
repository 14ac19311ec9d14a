#include "framework/doctor/environment/limits.h"

#include <charconv>
#include <fstream>
#include <string>

namespace brim::doctor::environment {

std::optional<int64_t> process_limit(const Machine& machine, std::string_view name) {
  std::ifstream file(machine.path("proc/self/limits"));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find_first_not_of(' ', name.size());
    if (at == std::string::npos) return std::nullopt;
    int64_t value = 0;
    const auto parsed = std::from_chars(line.data() + at, line.data() + line.size(), value);
    return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace brim::doctor::environment
