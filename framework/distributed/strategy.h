// What the training step asks of ranks that train one model together: data_parallel.h keeps the
// whole model on each of them, fully_sharded.h a part.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace brim::device {
class StreamEvent;
}

namespace brim::distributed {

/// The names of the parameters in each bucket, in the order in which buckets are summed.
using BucketLayout = std::vector<std::vector<std::string>>;

/// Every rank calls the same members in the same order.
class Strategy {
 public:
  Strategy() = default;
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Before the forward pass of a micro-batch; `sums`: the last one of its step.
  virtual void before_forward(bool sums) = 0;
  /// Seconds that the host has waited for other ranks' weights since then.
  virtual double waited_s() const { return 0; }

  /// Runs `backward`, which calls backward() on `loss`. Where `sums`, the gradients that have
  /// accumulated since the last sum are added up over the ranks; the loss is this rank's part of
  /// theirs. Call before_forward(sums) first.
  ///
  /// Returns whether every rank came as far: false where one gave the step up. Then no gradient of
  /// the step is of use, and every rank calls reset() before the step is taken again.
  virtual bool backward(const at::Tensor& loss, bool sums,
                        const std::function<void()>& backward) = 0;

  /// For a rank that can't continue with its step, whatever it was doing, and in place of
  /// backward(), or after it has thrown what `backward` threw: takes part in the sums that the
  /// others wait for, and lets them know.
  virtual void give_up() = 0;
  /// Begins afresh between steps.
  virtual void reset() = 0;

  /// Seconds that the last backward() waited for other ranks, as the host saw it.
  virtual double exposed_s() const = 0;
  /// The moment on a GPU's stream at which the last sum's own work was done; null on the CPU, for a
  /// rank alone, and before take_compute_s() was first called.
  virtual std::shared_ptr<const device::StreamEvent> own_work_done() const { return nullptr; }
  /// Seconds of this rank's own work in the steps that the device has done since the last call.
  virtual double take_compute_s() = 0;
  /// The buckets that the next sum uses; empty where there are none.
  virtual BucketLayout layout() { return {}; }
};

}  // namespace brim::distributed
