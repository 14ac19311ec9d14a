// What a run's data costs it: the speed that the run got against the ceiling, the speed of the same
// steps where data costs nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/doctor/facts.h"

namespace brim::doctor {

struct Proof {
  double ceiling_per_s = 0;            // samples, over as many ranks as the run had
  std::optional<double> got_per_s;     // absent: not recorded
  double waited_share = 0;             // of the run's time, for data
  double recorded_share = 0;           // of it, what data cost by the run's own record
  int64_t ranks = 1;                   // of the run; the ceiling is one rank's, times these
  int64_t steps = 0;                   // that the ceiling was measured by
  bool is_too_short = false;           // of the run: its rules say nothing of it
  std::vector<std::string> otherness;  // how the run's machine was another one; then no gap is told

  /// The share of the ceiling that the run did not get; absent where nothing can be compared.
  std::optional<double> gap() const;
  /// "data costs you 31 %: …".
  std::string sentence() const;

 private:
  std::string comparison() const;
};

/// `ceiling_per_s` is one rank's.
Proof prove(const RunFacts& facts, double ceiling_per_s, int64_t steps);

/// {"ceiling_per_s", "run_per_s", "gap", "waited_for_data", "recorded", "ranks", "steps",
/// "too_short", "message"}.
nlohmann::json to_json(const Proof& proof);

}  // namespace brim::doctor
