// A dataset of numbers, for tests of orders and samplers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/data/dataset.h"
#include "framework/data/order/order.h"

namespace brim::data {

/// Samples of 8 bytes: their number, and one drawn for their augmentation.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  int64_t sample_bytes() const override { return 8; }
  std::string name(int64_t index) const override { return std::to_string(index); }
  int64_t classes() const override { return classes_; }
  int64_t label(int64_t index) const override {
    return labels.empty() ? 0 : labels[static_cast<size_t>(index)];
  }
  std::optional<int64_t> length(int64_t index) const override {
    if (lengths.empty()) return std::nullopt;
    return lengths[static_cast<size_t>(index)];
  }
  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> bytes) const override {
    if (index == bad) throw Error(Exit::kData, name(index) + " is bad");
    for (int64_t i = 0; i < 4; ++i) bytes[static_cast<size_t>(i)] = index >> (8 * i) & 255;
    const uint32_t drawn = random == nullptr ? 0 : random->next_u32();
    for (int64_t i = 0; i < 4; ++i) bytes[static_cast<size_t>(4 + i)] = drawn >> (8 * i) & 255;
    return label(index);
  }
  std::span<const int64_t> shard_ends() const override { return ends; }

  void set_labels(std::vector<int64_t> values, int64_t classes) {
    labels = std::move(values);
    classes_ = classes;
  }
  std::vector<int64_t> ends;
  std::vector<int64_t> labels;
  std::vector<int64_t> lengths;
  int64_t bad = -1;  // can't be read

 private:
  int64_t size_;
  int64_t classes_ = 0;
};

inline Numbers sharded(const std::vector<int64_t>& sizes) {
  Numbers dataset(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  std::partial_sum(sizes.begin(), sizes.end(), std::back_inserter(dataset.ends));
  return dataset;
}

inline std::vector<int64_t> epoch_of(const Order& order, int64_t epoch, int64_t size) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < size; ++i) samples.push_back(order.at(epoch, i).sample);
  return samples;
}

inline std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values;
}

inline std::vector<int64_t> all(int64_t size) {
  std::vector<int64_t> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace brim::data
