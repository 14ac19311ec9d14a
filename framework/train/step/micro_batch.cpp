#include "framework/train/step/micro_batch.h"

#include <algorithm>

namespace brim::train {

MicroBatch::MicroBatch(int64_t wanted, int64_t unit)
    : wanted_(wanted), unit_(unit), size_(wanted) {}

bool MicroBatch::halve(int64_t step, int64_t used) {
  const int64_t units = std::min(size_, used) / unit_;
  if (units <= 1) return false;
  size_ = (units + 1) / 2 * unit_;
  if (has_grown_) wait_steps_ *= 2;
  grow_at_ = step + wait_steps_;
  return true;
}

bool MicroBatch::grow(int64_t step) {
  if (size_ >= wanted_ || step < grow_at_) return false;
  size_ = std::min(wanted_, 2 * size_);
  grow_at_ = step + wait_steps_;
  has_grown_ = true;
  return true;
}

}  // namespace brim::train
