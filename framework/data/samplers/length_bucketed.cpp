#include "framework/data/samplers/length_bucketed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/data/order/two_entry_cache.h"

namespace brim::data {
namespace {

class LengthBucketed final : public Order {
 public:
  LengthBucketed(const Dataset& dataset, std::shared_ptr<const Order> shuffled,
                 const OrderOptions& options, int64_t batches)
      : dataset_(dataset),
        shuffled_(std::move(shuffled)),
        size_(dataset.size()),
        seed_(options.seed),
        batch_(options.global_batch),
        window_(size_),
        batches_(batches) {
    int64_t samples = 0;
    if (!__builtin_mul_overflow(batches, batch_, &samples)) window_ = std::min(samples, size_);
  }

  SampleRef at(int64_t epoch, int64_t position) const override {
    const int64_t window = position / window_;
    const int64_t place = position % window_;
    const int64_t samples = std::min(window_, size_ - window * window_);
    const int64_t whole = samples / batch_;  // a short batch stays the last
    int64_t batch = place / batch_;
    if (batch < whole) {
      batch = KeyedPermutation(choice_seed(seed_, Choice::kBatches, epoch),
                               static_cast<uint64_t>(window), whole)(batch);
    }
    const int64_t windows = (size_ + window_ - 1) / window_;
    const auto sorted = sorted_.get(epoch * windows + window, [&](int64_t) {
      return sort_window(epoch, window * window_, samples);
    });
    const int64_t sample = (*sorted)[static_cast<size_t>(batch * batch_ + place % batch_)];
    return {sample, sample};
  }
  std::string text() const override {
    return fmt::format("by length within {} batches, {}", batches_, shuffled_->text());
  }

 private:
  /// The samples at these positions of the shuffled order, the shortest first.
  std::vector<int64_t> sort_window(int64_t epoch, int64_t first, int64_t count) const {
    struct Entry {
      int64_t length;
      int64_t sample;
    };
    std::vector<Entry> entries;
    entries.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sample = shuffled_->at(epoch, first + i).sample;
      entries.push_back({dataset_.length(sample).value_or(0), sample});
    }
    std::ranges::stable_sort(entries, {}, &Entry::length);
    std::vector<int64_t> samples;
    samples.reserve(entries.size());
    for (const Entry& entry : entries) samples.push_back(entry.sample);
    return samples;
  }

  const Dataset& dataset_;
  std::shared_ptr<const Order> shuffled_;
  int64_t size_;
  uint64_t seed_;
  int64_t batch_;
  int64_t window_;  // samples, whole batches but where one window holds all
  int64_t batches_;
  mutable TwoEntryCache<std::vector<int64_t>> sorted_;  // by epoch and window
};

}  // namespace

void LengthBucketedConfig::fields(recipe::Fields& f) {
  f.value("batches", batches, "global batches whose samples are sorted together",
          recipe::between(1, 1e6));
  window.fields(f);
}

std::shared_ptr<const Order> LengthBucketedConfig::order(const Dataset& dataset,
                                                         const OrderOptions& options) const {
  if (dataset.size() > 0 && !dataset.length(0)) {
    throw Error(Exit::kRecipe,
                "[data.sampler] name = \"length_bucketed\": expected samples that differ in "
                "length, such as those of kind = \"tokens\" with packing = \"padded\"; here all "
                "are alike");
  }
  return std::make_shared<LengthBucketed>(dataset, shuffled_order(dataset, options.seed, window),
                                          options, batches);
}

}  // namespace brim::data
