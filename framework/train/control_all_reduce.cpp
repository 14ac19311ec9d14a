#include "framework/train/control_all_reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace brim::train {
namespace {

// The values: stop, checkpoint, then each rank's work as microseconds and samples. A rank leaves
// the places of the others 0, so that the maximum over the ranks has all of them.
constexpr int64_t kRequests = 2, kValuesPerRank = 2;

int32_t as_int32(double value) {
  return static_cast<int32_t>(std::clamp<double>(value, 0, std::numeric_limits<int32_t>::max()));
}

}  // namespace

ControlRequests ControlAllReduce::exchange(const ControlRequests& own,
                                           const telemetry::RankWork& work) {
  if (group_->is_single_rank()) return own;
  const ControlRequests before = finish();
  cast_ = at::zeros({kRequests + kValuesPerRank * group_->world()}, at::kInt);
  auto* values = cast_.mutable_data_ptr<int32_t>();
  values[0] = own.stop ? 1 : 0;
  values[1] = own.checkpoint ? 1 : 0;
  values += kRequests + kValuesPerRank * group_->rank();
  values[0] = as_int32(1e6 * work.busy_s);
  values[1] = as_int32(static_cast<double>(work.samples));
  pending_ = group_->start_all_reduce(cast_, distributed::Reduce::kMax, "the stop request");
  return before;
}

ControlRequests ControlAllReduce::finish() {
  pending_.wait();
  works_.clear();
  if (!cast_.defined()) return {};
  const auto* told = cast_.const_data_ptr<int32_t>();
  const ControlRequests requests = {.stop = told[0] != 0, .checkpoint = told[1] != 0};
  works_.resize(static_cast<size_t>(group_->world()));
  told += kRequests;
  for (telemetry::RankWork& rank : works_) {
    rank = {.busy_s = 1e-6 * told[0], .samples = told[1]};
    told += kValuesPerRank;
  }
  return requests;
}

}  // namespace brim::train
