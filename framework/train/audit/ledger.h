// The ledger of samples: how often each epoch's steps have seen each sample, and in which step and
// on which rank. It goes through the order as the loader does, position by position, with a bit of
// memory for each sample.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "framework/data/order/order.h"
#include "framework/train/audit/sample_record.h"

namespace brim::train {

/// Consecutive epochs of which the same can be said. Numbers without "all" are an epoch's.
struct EpochRange {
  int64_t first = 0;  // from 0
  int64_t last = 0;
  int64_t steps = 0;
  bool is_whole = false;       // all steps of the epoch are finished
  int64_t seen = 0;            // samples, those that came twice counted twice
  int64_t least_distinct = 0;  // different samples, over the epochs
  int64_t most_distinct = 0;
  int64_t replaced_all = 0;
  /// One that came more than once.
  std::optional<int64_t> repeated_sample = {};

  /// Whether every sample of the epoch was seen once, or as much of it as its steps have reached.
  bool is_exact(int64_t samples) const;
};

/// Where a sample was seen.
struct Place {
  int64_t epoch = 0;     // from 0
  int64_t step = 0;      // of the run, from 1
  int64_t position = 0;  // of the epoch
  /// The first of `stages` ranks; nothing where the record does not tell.
  std::optional<int64_t> rank = {};
  int64_t stages = 1;
};

struct Ledger {
  std::vector<EpochRange> epochs;
  std::vector<Place> places;  // of the sample that was asked for
  int64_t places_left_out = 0;
};

/// Throws Error(kStopped) where a stop is asked for.
Ledger make_ledger(const SampleRecord& record, const data::Order& order,
                   std::optional<int64_t> sample = {});

struct SeenSample {
  int64_t sample = 0;
  Place place;
};

/// The samples of a step from 1 to record.step, by position. Throws Error(kResource) where they are
/// too many to list.
std::vector<SeenSample> samples_of_step(const SampleRecord& record, const data::Order& order,
                                        int64_t step);

}  // namespace brim::train
