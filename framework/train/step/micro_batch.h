// How many samples a pass takes while a run continues, in training or evaluation: halved where
// memory runs out, and doubled again after a while, since what took the memory may have gone.
#pragma once

#include <cstdint>

namespace brim::train {

class MicroBatch {
 public:
  /// At most `wanted` samples, a multiple of `unit`.
  MicroBatch(int64_t wanted, int64_t unit);

  int64_t wanted() const { return wanted_; }
  int64_t size() const { return size_; }
  /// Memory ran out in this step, or evaluation, whose passes had at most `used` samples. False
  /// where there is nothing left to halve.
  bool halve(int64_t step, int64_t used);
  /// Before each step: true where the size has grown.
  bool grow(int64_t step);

 private:
  int64_t wanted_;
  int64_t unit_;
  int64_t size_;
  int64_t wait_steps_ = 100;  // before it grows; twice as long after growing was too early
  int64_t grow_at_ = 0;
  bool has_grown_ = false;
};

}  // namespace brim::train
