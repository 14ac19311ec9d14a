// Ways to take a step, ranked: which fit, which is fastest, and why, in words.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/plan/step_time.h"

namespace brim::plan {

struct Candidate {
  Strategy strategy = {};
  Batch batch = {};
  Cut cut = {};
  std::vector<std::string> recompute = {};  // as train.recompute
  int64_t samples = 1;                      // of a step, over all ranks
  int64_t peak_bytes = 0;                   // of the tensors of the rank that holds most
  int64_t cap_bytes = 0;                    // that they may hold; below 0 where others take it all
  StepTime time = {};

  /// What of the cap the peak may be: the rest lies in pieces that nothing fits in.
  int64_t room_bytes() const;
  /// By how much the cap is too small.
  int64_t missing_bytes() const;
  bool fits() const { return peak_bytes <= room_bytes(); }
  double sample_s() const { return time.total_s() / static_cast<double>(samples); }
};

/// What fits comes first, the fastest of it at the top, the rest by its memory. Of those that are
/// as fast but for a hundredth the simplest leads: ddp, zero1, fsdp, stages, without recompute,
/// with the least memory.
void rank(std::vector<Candidate>& candidates);

/// One sentence on the first of ranked candidates, which fits: "ddp fits: 38 GiB of 80 GiB; zero1
/// would save 12 GiB and cost 1 %".
std::string why(const std::vector<Candidate>& ranked);

/// The lines of a recipe that take the candidate's way.
std::string recipe_lines(const Candidate& candidate);

/// Ranked candidates that fit, a line each, at most `most`.
std::string table(const std::vector<Candidate>& ranked, size_t most);

/// "strategy", "shards", "stages", "micro", "recompute", "peak_bytes", "cap_bytes", "fits",
/// "step_s", "compute_s", "update_s", "exposed_s", "samples_per_s".
nlohmann::json to_json(const Candidate& candidate);

}  // namespace brim::plan
