// How the ranks of a run compare: who needs longest for its part of a step, who has most samples.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace brim::telemetry {

/// A rank's own part of one step or more.
struct RankWork {
  double busy_s = 0;  // forward, backward and waits for data; not the waits for other ranks
  int64_t samples = 0;
};

/// Adds to `sums`, by rank; empty `sums` become as long as `works`.
void add_works(std::vector<RankWork>& sums, const std::vector<RankWork>& works);

/// A line's "ranks": {"slowest" (its number), "slowest_ratio" (its busy time to the median of the
/// other ranks), "slowest_to_rank_0" (the same to that of rank 0, whose phases are recorded),
/// "largest_share_ratio" (most samples of any rank to the mean)}. Null for fewer than two ranks;
/// a ratio to nothing is left out.
nlohmann::json rank_metrics(const std::vector<RankWork>& works);

/// run.json's "per_rank": [{"rank", "place", "busy_s", "samples"}]; the last two where there is any
/// work. `places` are "cuda:1 on gpu03", by rank.
nlohmann::json rank_record(const std::vector<std::string>& places,
                           const std::vector<RankWork>& works);

}  // namespace brim::telemetry
