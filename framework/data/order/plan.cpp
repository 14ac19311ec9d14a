#include "framework/data/order/plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "framework/base/error.h"

namespace brim::data {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

constexpr int64_t kMaxAhead = int64_t{1} << 20;

void require(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw Error(Exit::kBug, "the loader's option {} is {}: expected {} to {}", name, value, least,
              most);
}

void check(int64_t size, const LoaderOptions& o, int64_t start_epoch, int64_t start_step) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  require("global_batch", o.global_batch, 1, kAny);
  require("micro_batch", o.micro_batch, 1, kAny);
  require("workers", o.workers, 0, kMaxAhead);
  require("prefetch", o.prefetch, 0, kMaxAhead);
  require("world", o.world, 1, kAny);
  require("rank", o.rank, 0, o.world - 1);
  require("epochs", o.epochs, 0, kAny);
  require("start_epoch", start_epoch, 0, kAny);
  require("start_step", start_step, 0, kAny);
  if (o.order == nullptr) {
    throw Error(Exit::kBug, std::string("the loader's option order is null: expected an order, "
                                        "such as sequential_order()"));
  }
  if (size < 1) throw Error(Exit::kData, "the dataset holds no samples");
  if (o.pairs && (o.global_batch % 2 != 0 || o.micro_batch < 2)) {
    throw Error(Exit::kRecipe,
                "mixup and cutmix need whole pairs of samples: expected an even batch.global and a "
                "batch.micro of at least 2, found {} and {}",
                o.global_batch, o.micro_batch);
  }
  const int64_t steps = steps_per_epoch(size, o.global_batch, o.drop_last);
  if (steps == 0) {
    throw Error(Exit::kRecipe,
                "the global batch of {} is larger than the dataset's {} samples, and "
                "data.drop_last leaves out the short batch: no step is left; lower batch.global or "
                "set data.drop_last = false",
                o.global_batch, size);
  }
  if (start_step > steps) {
    throw Error(Exit::kBug, "cannot start before step {}: an epoch has {}", start_step, steps);
  }
}

}  // namespace

int64_t steps_per_epoch(int64_t size, int64_t global_batch, bool drop_last) {
  return drop_last ? size / global_batch : divide_up(size, global_batch);
}

Plan::Plan(int64_t size, const LoaderOptions& options, int64_t start_epoch, int64_t start_step)
    : size_(size), options_(options), epoch_(start_epoch), step_(start_step) {
  check(size, options, start_epoch, start_step);
  steps_ = steps_per_epoch(size, options.global_batch, options.drop_last);
  end_epoch_ =
      options.epochs == 0 ? std::numeric_limits<int64_t>::max() : start_epoch + options.epochs;
  if (step_ == steps_) {
    step_ = 0;
    ++epoch_;
  }
}

/// A rank's part of the step that comes next, which has `samples`.
PositionRange Plan::share(int64_t samples, int64_t rank) const {
  if (options_.shares != nullptr) {
    return options_.shares->part(epoch_ * steps_ + step_, samples, rank, options_.pairs);
  }
  const auto cut = options_.pairs ? split_pairs : split;
  return cut(samples, options_.world, rank);
}

/// Micro-batches that each rank cuts its part into: as many as the largest part needs.
int64_t Plan::micro_batches(int64_t samples) const {
  const int64_t unit = options_.pairs ? 2 : 1;
  int64_t largest = divide_up(divide_up(samples, unit), options_.world);
  if (options_.shares != nullptr) {
    for (int64_t rank = 0; rank < options_.world; ++rank) {
      largest = std::max(largest, divide_up(share(samples, rank).count, unit));
    }
  }
  return divide_up(largest, options_.micro_batch / unit);
}

std::optional<BatchPlan> Plan::next() {
  if (epoch_ >= end_epoch_) return std::nullopt;
  const int64_t first = step_ * options_.global_batch;
  const int64_t samples = std::min(options_.global_batch, size_ - first);
  const int64_t micro_batches = this->micro_batches(samples);
  const auto cut = options_.pairs ? split_pairs : split;
  const PositionRange share = this->share(samples, options_.rank);
  const PositionRange part = cut(share.count, micro_batches, micro_);

  BatchPlan plan = {.epoch = epoch_,
                    .step = step_,
                    .first_position = first + share.first + part.first,
                    .count = part.count,
                    .step_samples = samples,
                    .weight = part.count,
                    .step_weight = samples,
                    .ends_step = micro_ + 1 == micro_batches};
  plan.ends_epoch = plan.ends_step && step_ + 1 == steps_;
  ++micro_;
  if (plan.ends_step) {
    micro_ = 0;
    ++step_;
  }
  if (plan.ends_epoch) {
    step_ = 0;
    ++epoch_;
  }
  return plan;
}

int64_t Plan::largest_batch() const {
  const int64_t unit = options_.pairs ? 2 : 1;
  const int64_t samples = std::min(options_.global_batch, size_);
  int64_t share = divide_up(divide_up(samples, unit), options_.world) * unit;
  if (options_.shares != nullptr)
    share = std::min(samples, RankPartition::kMaxWeight * share + unit);
  return std::min(options_.micro_batch, share);
}

}  // namespace brim::data
