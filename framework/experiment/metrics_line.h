// The numbers of one line of metrics.jsonl. A reader of its own because a long run has gigabytes of
// them, of which only the numbers matter: it is several times faster than a JSON library and makes
// no copies.
#pragma once

#include <string_view>
#include <vector>

namespace brim::experiment {

/// "loss": section "", key "loss"; "forward" of the object "phases_s": section "phases_s". The
/// views are of the line; escapes in them stay as they are.
struct LineMetric {
  std::string_view section;
  std::string_view key;
  double value = 0.0;  // NaN: the line says null
};

/// Fills `metrics` with the line's numbers and nulls, those of objects in objects and of arrays
/// left out. False where the line is not one JSON object; `metrics` then means nothing.
bool read_metrics_line(std::string_view line, std::vector<LineMetric>& metrics);

}  // namespace brim::experiment
