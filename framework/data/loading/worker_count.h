// How many decoding threads a training loop needs, found from what a stretch of time shows. Pure
// arithmetic: the loader measures.
#pragma once

#include <cstdint>

namespace brim::data {

/// What happened between two moments, in seconds.
struct LoaderPace {
  double wall_s = 0;  // how long it was
  double wait_s = 0;  // of that, the consumer waited for a batch or decoded by itself
  double busy_s = 0;  // decoding, summed over the threads
};

/// The number of threads for the next stretch, from 1 to `limit`, when `active` were at work.
/// Grows while the consumer waits for them, doubling where it waits much; shrinks to what the
/// consumer's pace takes and a quarter more.
int64_t next_worker_count(const LoaderPace& pace, int64_t active, int64_t limit);

}  // namespace brim::data
