// Which sample lies at which position of an epoch, as a pure function: no list of indices is
// shuffled or handed to threads, and a run that starts in the middle sees what it would have seen.
// The orders that a recipe can choose are in samplers/; which positions make a batch is plan.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace brim::data {

/// What lies at a position.
struct SampleRef {
  int64_t sample = 0;
  /// Together with seed and epoch names the random numbers of the sample's augmentation: the sample
  /// itself, or the position in orders that give a sample more than once an epoch.
  int64_t stream = 0;

  bool operator==(const SampleRef&) const = default;
};

/// Const members may be called from several threads at once.
class Order {
 public:
  virtual ~Order() = default;

  /// What lies at `position` of `epoch`. An epoch has as many positions as the dataset has samples.
  virtual SampleRef at(int64_t epoch, int64_t position) const = 0;

  /// In words, for people and for checkpoints: a run may only continue with the text it began with.
  virtual std::string text() const = 0;

  /// Whether each epoch gives each sample exactly once.
  virtual bool is_permutation() const { return true; }
};

/// Each sample at the position of its number.
std::shared_ptr<const Order> sequential_order();

}  // namespace brim::data
