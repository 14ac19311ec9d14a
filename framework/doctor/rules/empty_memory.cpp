// A GPU's memory is mostly empty: a larger batch would use the device better.
#include <algorithm>

#include "framework/base/units.h"
#include "framework/doctor/rules/rules.h"

namespace brim::doctor {
namespace {

std::string advice(const RunFacts& facts, double fill) {
  if (!facts.micro_batch || !facts.global_batch) return "batch.micro = \"auto\"";
  const double times = std::min(kFillTarget / std::max(fill, 1e-3), 64.0);
  // Parameters and optimizer do not grow with the batch, so this stays on the safe side.
  const int64_t micro = *facts.micro_batch;
  auto larger = static_cast<int64_t>(static_cast<double>(micro) * times);
  if (larger / 8 * 8 > micro) larger = larger / 8 * 8;
  const std::string share = "leave the rest of the GPU to another job with device.memory_fraction";
  if (larger <= micro) return share;
  if (micro < *facts.global_batch) {
    return fmt::format("batch.micro = {}", std::min(larger, *facts.global_batch));
  }
  return fmt::format("batch.global = {} (with its learning rate), or {}", larger, share);
}

}  // namespace

RuleResult check_empty_memory(const RunFacts& facts) {
  if (!facts.is_cuda) return not_recorded("device");
  if (!*facts.is_cuda) return silent();  // a CPU's memory is not only for this
  if (!facts.peak_bytes || !facts.cap_bytes) return not_recorded("memory");
  const double fill = *facts.peak_bytes / *facts.cap_bytes;
  const auto severity = fallen_to(fill, kEmpty);
  if (!severity) return silent();
  return found(*severity, 0.1 * (1 - fill),
               fmt::format("only {} of {} of the device's memory is used",
                           format_bytes(static_cast<int64_t>(*facts.peak_bytes)),
                           format_bytes(static_cast<int64_t>(*facts.cap_bytes))),
               advice(facts, fill));
}

}  // namespace brim::doctor
