// The load average exceeds the number of cores.
#include <algorithm>

#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_oversubscription(const RunFacts& facts) {
  if (!facts.load_per_core) return not_recorded("the machine's load");
  const auto severity = reached(*facts.load_per_core, kLoadPerCore);
  if (!severity) return silent();
  const bool has_many_workers =
      !facts.workers_are_auto && facts.workers && facts.cores && *facts.workers >= *facts.cores;
  return found(
      *severity, 1 - 1 / *facts.load_per_core,
      fmt::format("CPU oversubscribed: load {:.1f} per core", *facts.load_per_core),
      has_many_workers ? fmt::format("data.workers = {}", std::max<int64_t>(1, *facts.cores - 1))
      : facts.workers_are_auto
          ? "fewer programs beside this run, or OMP_NUM_THREADS = cores / ranks"
          : "data.workers = \"auto\", fewer programs beside this run, or OMP_NUM_THREADS = cores / "
            "ranks",
      facts.workers_are_auto ? std::vector<Settings>{}
                             : std::vector<Settings>{{"data.workers=auto"}});
}

}  // namespace brim::doctor
