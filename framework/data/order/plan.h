// Which positions make which batch, as pure functions: nothing here depends on threads, and a run
// that starts in the middle sees what it would have seen. Which sample lies at a position is
// order.h's, reading it loader.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "framework/data/order/order.h"
#include "framework/data/order/rank_partition.h"
#include "framework/data/order/replacement_log.h"
#include "framework/device/drawn_jpeg.h"

namespace brim::data {

/// What becomes of a sample that can't be read.
enum class OnError {
  kFail,     // next() throws
  kReplace,  // what lies at another position, chosen by its own, takes its place
  kDrop,     // its label is kNoLabel
};

struct LoaderOptions {
  int64_t global_batch = 1;    // samples of one optimizer step, over all ranks
  int64_t micro_batch = 1;     // most samples of one Batch
  int64_t workers = 0;         // most decoding threads; next() decodes too where it has to wait
  bool adapt_workers = false;  // as many of them as the consumer's pace takes
  int nice = 0;                // is added to that of the decoding threads, as by nice(1)
  int64_t prefetch = 2;        // batches made ahead of the one in use
  uint64_t seed = 0;
  std::shared_ptr<const Order> order = sequential_order();
  bool augment = false;
  bool drop_last = false;  // leave out an epoch's last step where it would be short
  int64_t rank = 0;
  int64_t world = 1;
  std::shared_ptr<const RankPartition> shares = nullptr;  // of the ranks in a step; null: even ones
  int64_t epochs = 0;  // from the first one on, after which next() gives null; 0: endless
  bool pairs = false;  // positions 2j and 2j + 1 of an epoch stay in one Batch
  OnError on_error = OnError::kFail;
  int64_t max_skipped = 100;                               // samples; one more is an error
  std::shared_ptr<ReplacementLog> replacements = nullptr;  // shared by a run's loaders
  device::DrawJpegs draw_jpegs = nullptr;                  // of the device; null: it decodes none
};

/// Optimizer steps of an epoch over `size` samples.
int64_t steps_per_epoch(int64_t size, int64_t global_batch, bool drop_last);

/// One micro-batch of one rank: positions first_position … first_position + count - 1 of an epoch.
/// A Plan gives every sample the weight 1; DevicePrefetcher knows better.
struct BatchPlan {
  int64_t epoch = 0;
  int64_t step = 0;  // of the epoch
  int64_t first_position = 0;
  int64_t count = 0;         // 0 where a short step leaves this rank without samples
  int64_t step_samples = 0;  // of the whole step, over all ranks
  int64_t weight = 0;        // of its samples together (Dataset::weight)
  int64_t step_weight = 0;   // of the whole step's
  bool ends_step = false;
  bool ends_epoch = false;
};

/// Lists a rank's micro-batches in order. A step's samples are split over the ranks, then into as
/// few micro-batches as the largest share takes; every rank has the same number of them. With
/// options.pairs the same is done with pairs.
class Plan {
 public:
  /// Starts before step `start_step` of `start_epoch`. Throws Error(kData) for an empty dataset,
  /// Error(kRecipe) where drop_last leaves no step or batches can't hold whole pairs, and
  /// Error(kBug) naming an option that is out of range.
  Plan(int64_t size, const LoaderOptions& options, int64_t start_epoch, int64_t start_step);

  /// Nullopt after options.epochs epochs.
  std::optional<BatchPlan> next();

  /// The most samples that a batch of this plan can hold.
  int64_t largest_batch() const;

 private:
  PositionRange share(int64_t samples, int64_t rank) const;
  int64_t micro_batches(int64_t samples) const;

  int64_t size_;
  LoaderOptions options_;
  int64_t steps_;
  int64_t epoch_;
  int64_t step_;
  int64_t micro_ = 0;
  int64_t end_epoch_;
};

}  // namespace brim::data
