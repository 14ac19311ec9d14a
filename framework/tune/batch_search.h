// The search for the largest micro-batch that fits in memory, in a handful of probes: peak memory
// is nearly linear in the batch, so two small probes predict the size, and real steps verify it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace brim::tune {

/// What the search is for: as many samples as memory holds, or as many a second.
enum class Objective { kMemory, kThroughput };

/// What came of real training steps with micro-batches of one size. With several ranks, of the one
/// that has the least memory left.
struct Probe {
  int64_t size = 0;
  bool fits = false;
  int64_t peak_bytes = 0;     // where it fits
  int64_t cap_bytes = 0;      // what the peak may be
  double step_s = 0;          // of one micro-batch, where it fits, the update's part included
  double update_s = 0;        // of the weights' update, as the host saw it
  bool is_disturbed = false;  // other processes used the cores: step_s is no measure
  std::optional<int64_t> predicted_bytes = {};  // the peak, from the probes before
};

struct SearchOptions {
  int64_t largest = 1;   // more is of no use: a rank's share of the global batch
  int64_t unit = 1;      // sizes are multiples of it: 2 where samples come in pairs
  double margin = 0.04;  // of the cap, left free: some of it lies in pieces that nothing fits in
  double enough = 0.94;  // of the cap: a size that fills this much is the result
  double enough_once_failed = 0.925;  // where a larger one has failed: there is little left to win
  int64_t max_probes = 16;
};

struct SearchResult {
  int64_t size = 0;  // 0: not even the smallest fits
  std::vector<Probe> probes;
};

using RunProbe = std::function<Probe(int64_t size)>;

/// The largest size that fits with the margin, or one that fills enough: a multiple of 8 where it
/// is over 8 and less than `largest`. Deterministic in what the probes say, so that ranks that are
/// told the same search the same way. Throws Error(kBug) for a unit or a largest size under 1.
SearchResult search_batch(const SearchOptions& options, const RunProbe& run_probe);

/// One probe of a size that an earlier search has found: the result's size is 0 where it no longer
/// fits with the margin, or is over the largest; where `is_largest` it was to be, also where half
/// as many samples more would fit by now.
SearchResult verify_batch(const SearchOptions& options, int64_t size, bool is_largest,
                          const RunProbe& run_probe);

/// Continues from a search: times the powers of two that it has left out below its size, and
/// returns the smallest size whose samples a second are within `tolerance` of the best.
int64_t smallest_fast_size(SearchResult& found, const SearchOptions& options,
                           const RunProbe& run_probe, double tolerance = 0.01);

/// Samples a second of the probe.
double samples_per_s(const Probe& probe);

/// The probe of the result's size; nullopt where there is none.
std::optional<Probe> probe_of(const SearchResult& result, int64_t size);

}  // namespace brim::tune
