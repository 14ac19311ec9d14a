#include "framework/train/votes.h"

#include <ATen/ATen.h>

namespace brim::train {

Wishes Votes::exchange(const Wishes& own) {
  if (group_->is_alone()) return own;
  pending_.wait();
  Wishes before;
  if (cast_.defined()) {
    const auto* wished = cast_.const_data_ptr<int32_t>();
    before = {.stop = wished[0] != 0, .checkpoint = wished[1] != 0};
  }
  cast_ = at::zeros({2}, at::kInt);
  auto* votes = cast_.mutable_data_ptr<int32_t>();
  votes[0] = own.stop ? 1 : 0;
  votes[1] = own.checkpoint ? 1 : 0;
  pending_ = group_->start_all_reduce(cast_, distributed::Reduce::kMax, "the vote on a stop");
  return before;
}

void Votes::finish() { pending_.wait(); }

}  // namespace brim::train
