// Any bytes are a line with metrics or refused; what a JSON library takes for an object is never
// refused, and has the same numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "framework/experiment/metrics_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  std::vector<brim::experiment::LineMetric> metrics;
  const bool is_read = brim::experiment::read_metrics_line(line, metrics);
  // Compared where both see the same: no escapes in keys, no nesting, which has a limit here, no
  // byte order mark, one line, no zero bytes, which end it there.
  if (line.find_first_of(std::string_view("\n\\[\0", 4)) != std::string_view::npos) return 0;
  if (line.starts_with("\xEF\xBB\xBF") || std::ranges::count(line, '{') > 1) return 0;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  if (!is_read) std::abort();
  for (const auto& metric : metrics) {
    const auto found = json.find(metric.key);
    if (found == json.end() || !found->is_number() || std::isnan(metric.value)) continue;
    const auto same = [&](const auto& other) {
      return other.key == metric.key && &other != &metric;
    };
    bool repeats = false;
    for (const auto& other : metrics) repeats |= same(other);
    if (!repeats && found->get<double>() != metric.value) std::abort();
  }
  return 0;
}
