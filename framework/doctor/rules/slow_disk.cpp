// Threads wait for a disk while the step waits for data.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_slow_disk(const RunFacts& facts) {
  if (!facts.io_stalled_percent || !facts.phases) return not_recorded("waits for disks");
  const auto severity = reached(*facts.io_stalled_percent, kIoStalled);
  if (!severity || facts.share(Phase::kDataWait) < kIoStalledWait) return silent();
  for (const char* in_memory : {"idx", "cifar", "synthetic", "synthetic_tokens"}) {
    if (facts.data_kind == in_memory) return silent();  // it is other processes that wait
  }
  return found(
      *severity, *facts.io_stalled_percent / 100,
      fmt::format(
          "I/O-bound: threads wait for a disk {:.0f} % of the time, and the step waits for data",
          *facts.io_stalled_percent),
      facts.cache == "none"
          ? "data.cache = \"encoded\", or tar shards on a faster disk (trainer data pack)"
          : "tar shards on a faster disk (trainer data pack)",
      facts.cache == "none" ? std::vector<Settings>{{"data.cache=encoded"}}
                            : std::vector<Settings>{});
}

}  // namespace brim::doctor
