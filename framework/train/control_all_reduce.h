// What the ranks tell each other after a step without a wait: what any of them asks for, and how
// long each has worked. The answer is there one step later, the same on every rank at the same
// step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "framework/distributed/group.h"
#include "framework/telemetry/rank_metrics.h"

namespace brim::train {

struct ControlRequests {
  bool stop = false;
  bool checkpoint = false;
};

class ControlAllReduce {
 public:
  explicit ControlAllReduce(std::shared_ptr<distributed::Group> group) : group_(std::move(group)) {}

  /// Starts the all-reduce of this rank's requests and its work of the step, and returns what any
  /// rank requested at the call before. A single rank gets its own requests at once.
  ControlRequests exchange(const ControlRequests& own, const telemetry::RankWork& work);
  /// The work that each rank told at the call before the last exchange(), after finish() at that
  /// one; empty after the first exchange(), and for a single rank.
  const std::vector<telemetry::RankWork>& works() const { return works_; }
  /// Waits for the last all-reduce, before the process group is destroyed, and returns what any
  /// rank requested at it.
  ControlRequests finish();

 private:
  std::shared_ptr<distributed::Group> group_;
  at::Tensor cast_;  // int32 [2 + 2 × ranks]; undefined before the first exchange()
  distributed::Pending pending_;
  std::vector<telemetry::RankWork> works_;
};

}  // namespace brim::train
