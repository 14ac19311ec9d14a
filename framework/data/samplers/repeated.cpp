#include "framework/data/samplers/repeated.h"

#include <utility>

#include "framework/base/error.h"

namespace brim::data {
namespace {

class Repeated final : public Order {
 public:
  Repeated(std::shared_ptr<const Order> once, int64_t size, int64_t repeats)
      : once_(std::move(once)), size_(size), repeats_(repeats) {}

  SampleRef at(int64_t epoch, int64_t position) const override {
    // Places go through `repeats` epochs; two samples share 2 · repeats of them, an odd one at the
    // end has the rest.
    const int64_t place = epoch % repeats_ * size_ + position;
    const int64_t first = place / (2 * repeats_) * 2;
    const int64_t turn = first + 1 < size_ ? first + place % 2 : first;
    return {once_->at(epoch / repeats_, turn).sample, position};
  }
  std::string text() const override {
    return fmt::format("{} times each, {}", repeats_, once_->text());
  }
  bool is_permutation() const override { return false; }

 private:
  std::shared_ptr<const Order> once_;
  int64_t size_;
  int64_t repeats_;
};

}  // namespace

void RepeatedConfig::fields(recipe::Fields& f) {
  f.value("repeats", repeats,
          "times that a sample comes with augmentations of its own; a pass over the dataset takes "
          "as many "
          "epochs",
          recipe::between(2, 64));
  window.fields(f);
}

std::shared_ptr<const Order> RepeatedConfig::order(const Dataset& dataset,
                                                   const OrderOptions& options) const {
  return std::make_shared<Repeated>(shuffled_order(dataset, options.seed, window), dataset.size(),
                                    repeats);
}

}  // namespace brim::data
