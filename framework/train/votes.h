// What any rank asks for after a step, told to all ranks without a wait: the answer to a vote is
// there one step later, the same on every rank at the same step.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "framework/distributed/group.h"

namespace brim::train {

struct Wishes {
  bool stop = false;
  bool checkpoint = false;
};

class Votes {
 public:
  explicit Votes(std::shared_ptr<distributed::Group> group) : group_(std::move(group)) {}

  /// Casts this rank's vote and returns what any rank wished at the call before. A rank alone gets
  /// its own wishes at once.
  Wishes exchange(const Wishes& own);
  /// Takes back the last vote, before ranks part.
  void finish();

 private:
  std::shared_ptr<distributed::Group> group_;
  at::Tensor cast_;  // int32 [2]; undefined before the first vote
  distributed::Pending pending_;
};

}  // namespace brim::train
