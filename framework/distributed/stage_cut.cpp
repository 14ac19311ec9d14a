#include "framework/distributed/stage_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/device/memory/advice.h"

namespace brim::distributed {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

int64_t state_bytes(const std::vector<PartCost>& parts, size_t first, size_t end) {
  std::map<std::string, int64_t> once;  // what two parts share
  for (size_t i = first; i < end; ++i) {
    once.insert(parts[i].state_bytes.begin(), parts[i].state_bytes.end());
  }
  return std::accumulate(once.begin(), once.end(), int64_t{0},
                         [](int64_t sum, const auto& item) { return sum + item.second; });
}

double work_of(const std::vector<PartCost>& parts, size_t first, size_t end) {
  double work = 0;
  for (size_t i = first; i < end; ++i) work += parts[i].work;
  return work;
}

/// Empty where no cut fits.
std::vector<size_t> fastest_cut(const std::vector<PartCost>& parts, const CutOptions& options,
                                bool counts_activations) {
  const auto stages = static_cast<size_t>(options.stages);
  const size_t count = parts.size();
  const auto work_of_stage = [&](size_t stage, size_t first, size_t end) {
    if (options.cap_bytes > 0) {
      int64_t bytes = state_bytes(parts, first, end);
      for (size_t i = first; counts_activations && i < end; ++i) {
        bytes += options.live[stage] * parts[i].activation_bytes;
      }
      if (bytes > options.cap_bytes) return kNever;
    }
    return work_of(parts, first, end);
  };
  // slowest[s][p]: of the stages from s on, where stage s begins with part p.
  std::vector<std::vector<double>> slowest(stages, std::vector<double>(count + 1, kNever));
  std::vector<std::vector<size_t>> end_of(stages, std::vector<size_t>(count + 1));
  for (size_t stage = stages; stage-- > 0;) {
    for (size_t first = stage; first < count; ++first) {
      const bool is_last = stage + 1 == stages;
      for (size_t end = is_last ? count : first + 1; end <= count; ++end) {
        const double after = is_last ? 0 : slowest[stage + 1][end];
        const double slower = std::max(work_of_stage(stage, first, end), after);
        if (slower >= slowest[stage][first]) continue;
        slowest[stage][first] = slower;
        end_of[stage][first] = end;
      }
    }
  }
  if (slowest[0][0] == kNever) return {};
  std::vector<size_t> cut = {0};
  for (size_t stage = 0; stage + 1 < stages; ++stage) cut.push_back(end_of[stage][cut.back()]);
  return cut;
}

}  // namespace

std::vector<size_t> cut_into_stages(const std::vector<PartCost>& parts, const CutOptions& options) {
  for (const bool counts_activations : {true, false}) {
    std::vector<size_t> cut = fastest_cut(parts, options, counts_activations);
    if (!cut.empty()) return cut;
  }
  throw Error(Exit::kResource,
              "the model does not fit in {} stages: its state takes {}, and a rank has {} for "
              "tensors. Use more stages (distributed.stages), a smaller model, or {}",
              options.stages, format_bytes(state_bytes(parts, 0, parts.size())),
              format_bytes(options.cap_bytes), device::more_memory());
}

std::vector<std::string> describe_cut(const std::vector<PartCost>& parts,
                                      const std::vector<size_t>& cut) {
  const double all = work_of(parts, 0, parts.size());
  std::vector<std::string> lines;
  for (size_t stage = 0; stage < cut.size(); ++stage) {
    const size_t first = cut[stage];
    const size_t end = stage + 1 < cut.size() ? cut[stage + 1] : parts.size();
    const auto name = [&](size_t i) { return parts[i].name; };
    std::string names = name(first);
    // The stem and the head by their names, what lies between as a range.
    const size_t from = first == 0 && end > 1 ? 1 : first;
    const size_t to = end == parts.size() && end - from > 1 ? end - 1 : end;
    if (from > first) names += ", " + name(from);
    if (to - from == 2) names += ", " + name(to - 1);
    if (to - from > 2) names += " … " + name(to - 1);
    if (to < end) names += ", " + name(to);
    lines.push_back(fmt::format("stage {}: {} ({:.0f} %)", stage, names,
                                all > 0 ? 100 * work_of(parts, first, end) / all : 0.0));
  }
  return lines;
}

}  // namespace brim::distributed
