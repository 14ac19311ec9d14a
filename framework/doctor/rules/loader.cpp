// The device waits for data: the loader makes fewer samples than a step would take.
#include <algorithm>
#include <cmath>

#include "framework/base/units.h"
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

/// More threads where cores are left for them, then what makes a sample cheaper.
std::string advice(const RunFacts& facts) {
  std::string words;
  const double ratio = *facts.wanted_per_s / std::max(*facts.given_per_s, 1e-9);
  const bool has_idle_cores = !facts.load_per_core || !reached(*facts.load_per_core, kLoadPerCore);
  if (facts.workers && facts.cores && has_idle_cores) {
    const int64_t now = std::max<int64_t>(*facts.workers, 1);
    const auto needed =
        static_cast<int64_t>(std::ceil(static_cast<double>(now) * std::min(ratio, 64.0)));
    const int64_t possible = std::min(needed, *facts.cores);
    if (possible > now) {
      words = fmt::format("data.workers = {} ({} more)", possible, possible - now);
    }
  }
  if (!facts.cache.empty() && facts.cache != "decoded") {
    words += (words.empty() ? "" : " or ") + std::string("data.cache = \"decoded\"");
  }
  return words.empty()
             ? "cheaper data.augment, or smaller files; `trainer data bench` says what bounds it"
             : words;
}

}  // namespace

RuleResult check_loader(const RunFacts& facts) {
  if (!facts.phases || !facts.wanted_per_s || !facts.given_per_s) {
    return not_recorded("the phases of a step");
  }
  const double share = facts.share(Phase::kDataWait);
  const auto severity = reached(share, kDataWaitShare);
  if (!severity) return silent();
  return found(
      *severity, share,
      fmt::format("data-bound: {:.0f} % of step time; the loader delivers {} images/s, the "
                  "device could take {}",
                  100 * share, format_count(std::llround(*facts.given_per_s)),
                  format_count(std::llround(*facts.wanted_per_s))),
      advice(facts));
}

}  // namespace brim::doctor
