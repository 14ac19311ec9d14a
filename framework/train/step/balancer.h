// distributed.balance = "throughput": measures this rank and moves the shares of all, now and then.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/data/order/rank_partition.h"
#include "framework/distributed/group.h"

namespace brim::train {

class Balancer {
 public:
  /// New shares begin `lead` steps after they are chosen, beyond what any loader has read ahead.
  Balancer(std::shared_ptr<distributed::Group> group, int64_t lead);

  const std::shared_ptr<data::RankPartition>& shares() const { return shares_; }

  /// After every step, with this rank's samples in it and the seconds that it was busy with some,
  /// waits for other ranks left out. Every kEverySteps all ranks compare, and log what changes.
  void step(int64_t finished_steps, int64_t samples, double busy_s);

 private:
  static constexpr int64_t kEverySteps = 20;

  std::shared_ptr<distributed::Group> group_;
  const int64_t lead_;
  std::shared_ptr<data::RankPartition> shares_;
  std::vector<double> weights_;
  double samples_ = 0;
  double busy_s_ = 0;
};

}  // namespace brim::train
