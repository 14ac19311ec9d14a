// Threads wait for a disk while the step waits for data.
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

Outcome check_slow_disk(const RunFacts& facts) {
  if (!facts.io_stalled_percent || !facts.phases) return not_recorded("waits for disks");
  const auto severity = reached(*facts.io_stalled_percent, kIoStalled);
  if (!severity || facts.share(Phase::kDataWait) < kIoStalledWait) return silent();
  return found(*severity, *facts.io_stalled_percent / 100,
               fmt::format("threads wait for a disk {:.0f} % of the time, and the step for data",
                           *facts.io_stalled_percent),
               facts.cache == "none"
                   ? "data.cache = \"encoded\", or tar shards on a faster disk (trainer data pack)"
                   : "tar shards on a faster disk (trainer data pack)");
}

}  // namespace brim::doctor
