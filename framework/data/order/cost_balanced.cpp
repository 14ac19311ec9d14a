#include "framework/data/order/cost_balanced.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/data/order/rank_partition.h"
#include "framework/data/order/two_entry_cache.h"

namespace brim::data {
namespace {

class CostBalanced final : public Order {
 public:
  CostBalanced(std::shared_ptr<const Order> order, const Dataset& dataset, int64_t global_batch,
               int64_t world)
      : order_(std::move(order)),
        dataset_(dataset),
        size_(dataset.size()),
        global_batch_(global_batch),
        world_(world) {}

  SampleRef at(int64_t epoch, int64_t position) const override {
    const int64_t steps = (size_ + global_batch_ - 1) / global_batch_;
    const int64_t step = position / global_batch_;
    const auto refs = batches_.get(epoch * steps + step,
                                   [&](int64_t) { return arrange(epoch, step * global_batch_); });
    return (*refs)[static_cast<size_t>(position % global_batch_)];
  }

  // The same samples make the same steps: a checkpoint serves any number of ranks.
  std::string text() const override { return order_->text(); }
  bool is_permutation() const override { return order_->is_permutation(); }

 private:
  std::vector<SampleRef> arrange(int64_t epoch, int64_t first) const {
    const int64_t count = std::min(global_batch_, size_ - first);
    std::vector<SampleRef> refs;
    std::vector<int64_t> costs;
    for (int64_t i = 0; i < count; ++i) {
      refs.push_back(order_->at(epoch, first + i));
      costs.push_back(dataset_.length(refs.back().sample).value_or(0));
    }
    std::vector<SampleRef> arranged;
    for (const int64_t place : balance_costs(costs, world_)) {
      arranged.push_back(refs[static_cast<size_t>(place)]);
    }
    return arranged;
  }

  std::shared_ptr<const Order> order_;
  const Dataset& dataset_;
  int64_t size_, global_batch_, world_;
  mutable TwoEntryCache<std::vector<SampleRef>> batches_;  // by epoch and step
};

}  // namespace

std::vector<int64_t> balance_costs(std::span<const int64_t> costs, int64_t world) {
  const auto count = static_cast<int64_t>(costs.size());
  std::vector<int64_t> dearest_first(costs.size());
  std::iota(dearest_first.begin(), dearest_first.end(), int64_t{0});
  std::ranges::stable_sort(dearest_first, std::ranges::greater{},
                           [&](int64_t place) { return costs[static_cast<size_t>(place)]; });

  struct Rank {
    std::vector<int64_t> places;
    int64_t room;
    int64_t sum = 0;
  };
  std::vector<Rank> ranks;
  for (int64_t rank = 0; rank < world; ++rank)
    ranks.push_back({{}, split(count, world, rank).count});
  for (const int64_t place : dearest_first) {
    Rank* least = nullptr;
    for (Rank& rank : ranks) {
      if (rank.room > 0 && (least == nullptr || rank.sum < least->sum)) least = &rank;
    }
    least->places.push_back(place);
    least->room -= 1;
    least->sum += costs[static_cast<size_t>(place)];
  }

  std::vector<int64_t> order;
  order.reserve(costs.size());
  for (Rank& rank : ranks) {
    std::ranges::sort(rank.places);
    order.insert(order.end(), rank.places.begin(), rank.places.end());
  }
  return order;
}

std::shared_ptr<const Order> cost_balanced_order(std::shared_ptr<const Order> order,
                                                 const Dataset& dataset, int64_t global_batch,
                                                 int64_t world) {
  if (dataset.size() > 0 && !dataset.length(0)) {
    throw Error(Exit::kRecipe,
                "[distributed] balance = \"cost\": expected samples that differ in length, such as "
                "those of kind = \"tokens\" with packing = \"padded\"; here all are alike");
  }
  return std::make_shared<CostBalanced>(std::move(order), dataset, global_batch, world);
}

}  // namespace brim::data
