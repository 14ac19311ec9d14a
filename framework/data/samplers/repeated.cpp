#include "framework/data/samplers/repeated.h"

#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"

namespace brim::data {
namespace {

class Repeated final : public Order {
 public:
  Repeated(std::shared_ptr<const Order> once, int64_t size, int64_t repeats)
      : once_(std::move(once)), size_(size), repeats_(repeats) {}

  Draw at(int64_t epoch, int64_t position) const override {
    // Positions of `repeats` epochs in a row, `repeats` of them for each sample.
    const int64_t place = epoch % repeats_ * size_ + position;
    return {once_->at(epoch / repeats_, place / repeats_).sample, position};
  }
  std::string text() const override {
    return fmt::format("{} times in a row, {}", repeats_, once_->text());
  }

 private:
  std::shared_ptr<const Order> once_;
  int64_t size_;
  int64_t repeats_;
};

}  // namespace

void RepeatedConfig::fields(recipe::Fields& f) {
  f.value("repeats", repeats,
          "positions in a row that a sample takes; a pass over the dataset takes as many epochs",
          recipe::between(2, 64));
  window.fields(f);
}

std::shared_ptr<const Order> RepeatedConfig::order(const Dataset& dataset,
                                                   const OrderOptions& options) const {
  if (options.global_batch % repeats != 0) {
    log::warning(
        "data.sampler.repeats = {} doesn't divide the global batch of {}: the repeats of some "
        "samples fall into two batches",
        repeats, options.global_batch);
  }
  return std::make_shared<Repeated>(shuffled_order(dataset, options.seed, window), dataset.size(),
                                    repeats);
}

}  // namespace brim::data
