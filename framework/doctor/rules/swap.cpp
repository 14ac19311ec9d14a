// The process's memory was moved to a disk, or has to be read back from one.
#include <algorithm>

#include "framework/base/units.h"
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {

RuleResult check_swap(const RunFacts& facts) {
  if (!facts.swapped_bytes || !facts.major_faults_per_s) return not_recorded("swapping");
  const auto swapped = reached(*facts.swapped_bytes, kSwappedBytes);
  const auto faults = reached(*facts.major_faults_per_s, kMajorFaultsPerS);
  if (!swapped && !faults) return silent();
  return found(std::max(swapped.value_or(Severity::kHint), faults.value_or(Severity::kHint)), 0.5,
               fmt::format("{} swapped out, {:.0f} major page faults per second",
                           format_bytes(static_cast<int64_t>(*facts.swapped_bytes)),
                           *facts.major_faults_per_s),
               facts.cache == "decoded" || facts.cache == "encoded"
                   ? "a smaller data.cache_gib, or data.cache = \"none\""
               : facts.is_cuda.value_or(false)
                   ? "fewer data.workers or a smaller data.prefetch, or less beside this run"
                   : "a smaller batch.micro, or less beside this run");
}

}  // namespace brim::doctor
