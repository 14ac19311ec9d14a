#include "framework/data/samplers/class_balanced.h"

#include <vector>

#include "framework/base/error.h"
#include "framework/base/random.h"

namespace brim::data {
namespace {

/// The samples of each class that has any: those of class c are samples[first[c]] …
/// samples[first[c + 1] - 1].
struct ByClass {
  std::vector<int64_t> samples;
  std::vector<int64_t> first;

  int64_t classes() const { return static_cast<int64_t>(first.size()) - 1; }
};

ByClass group(const Dataset& dataset) {
  std::vector<int64_t> counts(static_cast<size_t>(dataset.classes()));
  for (int64_t i = 0; i < dataset.size(); ++i) ++counts[static_cast<size_t>(dataset.label(i))];
  ByClass result;
  std::vector<int64_t> next;  // by label: where its next sample goes
  int64_t first = 0;
  for (const int64_t count : counts) {
    next.push_back(first);
    if (count > 0) result.first.push_back(first);
    first += count;
  }
  result.first.push_back(first);
  result.samples.resize(static_cast<size_t>(first));
  for (int64_t i = 0; i < dataset.size(); ++i) {
    int64_t& place = next[static_cast<size_t>(dataset.label(i))];
    result.samples[static_cast<size_t>(place++)] = i;
  }
  return result;
}

/// An epoch is whole rounds, then the rest of its positions, at which the classes take turns from
/// epoch to epoch. So how often a class came before a position is known without counting.
class ClassBalanced final : public Order {
 public:
  ClassBalanced(const Dataset& dataset, uint64_t seed)
      : by_class_(group(dataset)), classes_(by_class_.classes()), seed_(seed) {
    if (classes_ == 0) return;  // an empty dataset, which has no positions
    rounds_ = dataset.size() / classes_;
    rest_ = dataset.size() % classes_;
  }

  SampleRef at(int64_t epoch, int64_t position) const override {
    const int64_t round = position / classes_;
    const int64_t place = position % classes_;
    const int64_t rests = epoch * rest_;  // positions of that kind in the epochs before
    if (round < rounds_) {
      const int64_t chosen = KeyedPermutation(choice_seed(seed_, Choice::kClass, epoch),
                                              static_cast<uint64_t>(round), classes_)(place);
      const int64_t turns = rests / classes_ + (chosen < rests % classes_ ? 1 : 0);
      return {member(chosen, epoch * rounds_ + round + turns), position};
    }
    const int64_t turn = rests + place;
    return {member(turn % classes_, (epoch + 1) * rounds_ + turn / classes_), position};
  }
  std::string text() const override { return "class_balanced"; }
  bool is_permutation() const override { return false; }

 private:
  /// What a class gives after `times` samples of it.
  int64_t member(int64_t chosen, int64_t times) const {
    const int64_t first = by_class_.first[static_cast<size_t>(chosen)];
    const int64_t count = by_class_.first[static_cast<size_t>(chosen + 1)] - first;
    const KeyedPermutation shuffle(choice_seed(seed_, Choice::kMember, chosen),
                                   static_cast<uint64_t>(times / count), count);
    return by_class_.samples[static_cast<size_t>(first + shuffle(times % count))];
  }

  ByClass by_class_;
  int64_t classes_;
  uint64_t seed_;
  int64_t rounds_ = 0;
  int64_t rest_ = 0;
};

}  // namespace

std::shared_ptr<const Order> ClassBalancedConfig::order(const Dataset& dataset,
                                                        const OrderOptions& options) const {
  if (dataset.classes() == 0) {
    throw Error(Exit::kRecipe,
                "[data.sampler] name = \"class_balanced\": expected data with classes; this kind "
                "of data has none");
  }
  return std::make_shared<ClassBalanced>(dataset, options.seed);
}

}  // namespace brim::data
