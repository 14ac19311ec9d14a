#include "framework/train/votes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace brim::train {
namespace {

// A vote: stop, checkpoint, then each rank's work as microseconds and samples. A rank leaves the
// places of the others 0, so that the maximum over the ranks has all of them.
constexpr int64_t kWishes = 2, kFiguresARank = 2;

int32_t as_int32(double value) {
  return static_cast<int32_t>(std::clamp<double>(value, 0, std::numeric_limits<int32_t>::max()));
}

}  // namespace

Wishes Votes::exchange(const Wishes& own, const telemetry::RankWork& work) {
  if (group_->is_alone()) return own;
  pending_.wait();
  Wishes before;
  if (cast_.defined()) {
    const auto* told = cast_.const_data_ptr<int32_t>();
    before = {.stop = told[0] != 0, .checkpoint = told[1] != 0};
    works_.resize(static_cast<size_t>(group_->world()));
    told += kWishes;
    for (telemetry::RankWork& rank : works_) {
      rank = {.busy_s = 1e-6 * told[0], .samples = told[1]};
      told += kFiguresARank;
    }
  }
  cast_ = at::zeros({kWishes + kFiguresARank * group_->world()}, at::kInt);
  auto* votes = cast_.mutable_data_ptr<int32_t>();
  votes[0] = own.stop ? 1 : 0;
  votes[1] = own.checkpoint ? 1 : 0;
  votes += kWishes + kFiguresARank * group_->rank();
  votes[0] = as_int32(1e6 * work.busy_s);
  votes[1] = as_int32(static_cast<double>(work.samples));
  pending_ = group_->start_all_reduce(cast_, distributed::Reduce::kMax, "the vote on a stop");
  return before;
}

void Votes::finish() { pending_.wait(); }

}  // namespace brim::train
