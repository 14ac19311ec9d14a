#include "framework/train/audit/ledger.h"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/data/order/rank_partition.h"

namespace brim::train {
namespace {

constexpr int64_t kStopCheck = 1 << 20;  // positions between looks for a stop
constexpr size_t kMaxPlaces = 100'000;
constexpr int64_t kMaxListed = 1 << 24;  // samples of a step

/// What was read at each position, replacements included.
class ReadOrder {
 public:
  ReadOrder(const SampleRecord& record, const data::Order& order) : order_(order) {
    for (const data::Replacement& one : record.history.replaced) {
      replaced_[{one.epoch, position_of(record, one)}] = one.by;
    }
  }

  int64_t at(int64_t epoch, int64_t position) const {
    if (!replaced_.empty()) {
      const auto found = replaced_.find({epoch, position});
      if (found != replaced_.end()) return found->second;
    }
    return order_.at(epoch, position).sample;
  }

  int64_t replaced_before(int64_t epoch, int64_t position) const {
    return std::distance(replaced_.lower_bound({epoch, 0}),
                         replaced_.lower_bound({epoch, position}));
  }

 private:
  /// Balancing by cost rearranges a step's samples: then it lies elsewhere in that step.
  int64_t position_of(const SampleRecord& record, const data::Replacement& one) const {
    if (order_.at(one.epoch, one.position).sample == one.sample) return one.position;
    const int64_t step = one.position / record.global_batch;
    const int64_t end = record.positions_of(step + 1);
    for (int64_t position = record.positions_of(step); position < end; ++position) {
      if (order_.at(one.epoch, position).sample == one.sample &&
          !replaced_.contains({one.epoch, position})) {
        return position;
      }
    }
    throw Error(Exit::kCheckpoint,
                "history.replaced: expected sample {} at position {} of epoch {}, found another "
                "one in the order of samples; use another checkpoint",
                one.sample, one.position, one.epoch);
  }

  const data::Order& order_;
  std::map<std::pair<int64_t, int64_t>, int64_t> replaced_;  // by epoch and position
};

/// The rank whose even share of `count` positions holds `index`.
int64_t rank_at(const HistoryPart& part, int64_t count, int64_t index) {
  const auto cut = part.shares == "pairs" ? data::split_pairs : data::split;
  int64_t low = 0;
  int64_t high = part.ranks - 1;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const data::PositionRange share = cut(count, part.ranks, middle);
    index < share.first + share.count ? high = middle : low = middle + 1;
  }
  return low;
}

Place place_of(const SampleRecord& record, int64_t epoch, int64_t position) {
  const int64_t step_of_epoch = position / record.global_batch;
  Place place{epoch, epoch * record.steps_per_epoch() + step_of_epoch + 1, position};
  const HistoryPart* part = record.part_of(place.step);
  const bool is_even = part != nullptr && (part->shares == "even" || part->shares == "pairs");
  if (part != nullptr && (is_even || part->ranks == 1)) {
    const int64_t first = record.positions_of(step_of_epoch);
    const int64_t count = record.positions_of(step_of_epoch + 1) - first;
    place.rank = rank_at(*part, count, position - first) * part->stages;
    place.stages = part->stages;
  }
  return place;
}

EpochRange count_epoch(const SampleRecord& record, const ReadOrder& order, int64_t epoch,
                       std::vector<bool>& seen) {
  EpochRange range{.first = epoch, .last = epoch, .steps = record.steps_of(epoch)};
  range.is_whole = range.steps == record.steps_per_epoch();
  range.seen = record.positions_of(range.steps);
  range.replaced_all = order.replaced_before(epoch, range.seen);
  std::fill(seen.begin(), seen.end(), false);
  int64_t distinct = 0;
  for (int64_t position = 0; position < range.seen; ++position) {
    if (position % kStopCheck == 0 && stop_requested()) {
      throw Error(Exit::kStopped, std::string("stopped before the last epoch was gone through"));
    }
    const int64_t sample = order.at(epoch, position);
    auto mark = seen[static_cast<size_t>(sample)];
    if (mark) range.repeated_sample = sample;
    distinct += mark ? 0 : 1;
    mark = true;
  }
  range.least_distinct = range.most_distinct = distinct;
  return range;
}

/// Whether the same can be said of both.
bool is_alike(const EpochRange& left, const EpochRange& right) {
  return left.steps == right.steps && (left.replaced_all > 0) == (right.replaced_all > 0) &&
         left.repeated_sample.has_value() == right.repeated_sample.has_value();
}

void append(std::vector<EpochRange>& ranges, const EpochRange& next) {
  if (ranges.empty() || !is_alike(ranges.back(), next)) {
    ranges.push_back(next);
    return;
  }
  EpochRange& range = ranges.back();
  range.last = next.last;
  range.least_distinct = std::min(range.least_distinct, next.least_distinct);
  range.most_distinct = std::max(range.most_distinct, next.most_distinct);
  range.replaced_all += next.replaced_all;
}

void find_places(const SampleRecord& record, const ReadOrder& order, int64_t sample,
                 const EpochRange& epoch, Ledger& ledger) {
  for (int64_t position = 0; position < epoch.seen; ++position) {
    if (order.at(epoch.first, position) != sample) continue;
    if (ledger.places.size() < kMaxPlaces) {
      ledger.places.push_back(place_of(record, epoch.first, position));
    } else {
      ++ledger.places_left_out;
    }
  }
}

}  // namespace

bool EpochRange::is_exact(int64_t samples) const {
  return !repeated_sample && replaced_all == 0 && (!is_whole || seen == samples);
}

Ledger make_ledger(const SampleRecord& record, const data::Order& order,
                   std::optional<int64_t> sample) {
  const ReadOrder read(record, order);
  std::vector<bool> seen(static_cast<size_t>(record.samples));
  Ledger ledger;
  for (int64_t epoch = 0; epoch < record.epochs(); ++epoch) {
    const EpochRange counted = count_epoch(record, read, epoch, seen);
    append(ledger.epochs, counted);
    if (sample && seen[static_cast<size_t>(*sample)]) {
      find_places(record, read, *sample, counted, ledger);
    }
  }
  return ledger;
}

std::vector<SeenSample> samples_of_step(const SampleRecord& record, const data::Order& order,
                                        int64_t step) {
  const int64_t epoch = (step - 1) / record.steps_per_epoch();
  const int64_t step_of_epoch = (step - 1) % record.steps_per_epoch();
  const int64_t first = record.positions_of(step_of_epoch);
  const int64_t end = record.positions_of(step_of_epoch + 1);
  if (end - first > kMaxListed) {
    throw Error(Exit::kResource, "step {}: expected at most {} samples to list, found {}", step,
                format_count(kMaxListed), format_count(end - first));
  }
  const ReadOrder read(record, order);
  std::vector<SeenSample> samples;
  for (int64_t position = first; position < end; ++position) {
    samples.push_back({read.at(epoch, position), place_of(record, epoch, position)});
  }
  return samples;
}

}  // namespace brim::train
