// Every rule of the diagnosis: one file each in this folder, thresholds in thresholds.h.
#pragma once

#include <fmt/format.h>

#include <span>

#include "framework/doctor/rule.h"

namespace brim::doctor {

RuleResult check_bookkeeping(const RunFacts& facts);
RuleResult check_communication(const RunFacts& facts);
RuleResult check_empty_memory(const RunFacts& facts);
RuleResult check_full_memory(const RunFacts& facts);
RuleResult check_host_syncs(const RunFacts& facts);
RuleResult check_launch_bound(const RunFacts& facts);
RuleResult check_layout(const RunFacts& facts);
RuleResult check_loader(const RunFacts& facts);
RuleResult check_oversubscription(const RunFacts& facts);
RuleResult check_precision(const RunFacts& facts);
RuleResult check_slow_disk(const RunFacts& facts);
RuleResult check_small_batch(const RunFacts& facts);
RuleResult check_straggler(const RunFacts& facts);
RuleResult check_swap(const RunFacts& facts);
RuleResult check_swing(const RunFacts& facts);
RuleResult check_throttling(const RunFacts& facts);
RuleResult check_uneven_shards(const RunFacts& facts);

std::span<const Rule> all_rules();

}  // namespace brim::doctor
