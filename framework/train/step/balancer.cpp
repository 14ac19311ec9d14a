#include "framework/train/step/balancer.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/log.h"
#include "framework/distributed/balance.h"

namespace brim::train {

Balancer::Balancer(std::shared_ptr<distributed::Group> group, int64_t lead)
    : group_(std::move(group)),
      lead_(lead),
      shares_(std::make_shared<data::RankPartition>(group_->world())),
      weights_(static_cast<size_t>(group_->world()), 1.0) {}

void Balancer::step(int64_t finished_steps, int64_t samples, double busy_s) {
  busy_s_ += busy_s;
  samples_ += static_cast<double>(samples);
  if (finished_steps % kEverySteps != 0) return;

  const at::Tensor rates = at::zeros({group_->world()}, at::kDouble);
  auto* rate = rates.mutable_data_ptr<double>();
  rate[group_->rank()] = samples_ / std::max(busy_s_, 1e-9);
  samples_ = busy_s_ = 0;
  group_->all_reduce(rates, distributed::Reduce::kSum, "the comparison of throughputs");
  const auto next = distributed::next_weights(weights_, {rate, rate + group_->world()});
  if (!next) return;
  weights_ = *next;
  shares_->change(finished_steps + lead_, weights_);
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  std::vector<double> percent;
  for (const double weight : weights_) percent.push_back(100 * weight / total);
  log::info("balance: from step {} on the ranks take {:.1f} % of a batch",
            finished_steps + lead_ + 1, fmt::join(percent, ", "));
}

}  // namespace brim::train
