// What the ranks tell each other after a step without a wait: what any of them asks for, and how
// long each has worked. The answer is there one step later, the same on every rank at the same
// step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "framework/distributed/group.h"
#include "framework/telemetry/rank_figures.h"

namespace brim::train {

struct Wishes {
  bool stop = false;
  bool checkpoint = false;
};

class Votes {
 public:
  explicit Votes(std::shared_ptr<distributed::Group> group) : group_(std::move(group)) {}

  /// Casts this rank's vote, with its work of the step, and returns what any rank wished at the
  /// call before. A rank alone gets its own wishes at once.
  Wishes exchange(const Wishes& own, const telemetry::RankWork& work);
  /// The work that each rank told at the call before the last exchange(); empty after the first
  /// one, and for a rank alone.
  const std::vector<telemetry::RankWork>& works() const { return works_; }
  /// Takes back the last vote, before ranks part.
  void finish();

 private:
  std::shared_ptr<distributed::Group> group_;
  at::Tensor cast_;  // int32 [2 + 2 × ranks]; undefined before the first vote
  distributed::Pending pending_;
  std::vector<telemetry::RankWork> works_;
};

}  // namespace brim::train
