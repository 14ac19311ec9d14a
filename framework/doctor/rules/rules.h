// Every rule of the diagnosis: one file each in this folder, thresholds in thresholds.h.
#pragma once

#include <fmt/format.h>

#include <span>

#include "framework/doctor/rule.h"

namespace brim::doctor {

Outcome check_communication(const RunFacts& facts);
Outcome check_empty_memory(const RunFacts& facts);
Outcome check_full_memory(const RunFacts& facts);
Outcome check_host_syncs(const RunFacts& facts);
Outcome check_launch_bound(const RunFacts& facts);
Outcome check_layout(const RunFacts& facts);
Outcome check_loader(const RunFacts& facts);
Outcome check_oversubscription(const RunFacts& facts);
Outcome check_precision(const RunFacts& facts);
Outcome check_slow_disk(const RunFacts& facts);
Outcome check_straggler(const RunFacts& facts);
Outcome check_swap(const RunFacts& facts);
Outcome check_swing(const RunFacts& facts);
Outcome check_throttling(const RunFacts& facts);
Outcome check_uneven_shards(const RunFacts& facts);

std::span<const Rule> all_rules();

}  // namespace brim::doctor
