#include "framework/nn/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace brim::nn {

KeyValueCache::KeyValueCache(int64_t rows, int64_t capacity)
    : capacity_(capacity), lengths_(static_cast<size_t>(rows), 0) {}

void KeyValueCache::copy_row(int64_t from, int64_t to) {
  const int64_t count = length(from);
  for (const Layer& layer : layers_) {
    for (const at::Tensor& all : {layer.keys, layer.values}) {
      all.select(0, to).narrow(0, 0, count).copy_(all.select(0, from).narrow(0, 0, count));
    }
  }
  lengths_[static_cast<size_t>(to)] = count;
}

CachedPass::CachedPass(KeyValueCache& cache, int64_t first_row, const at::Tensor& tokens)
    : cache_(cache), first_row_(first_row), count_(tokens.size(0)), new_tokens_(tokens.size(1)) {
  const auto first = cache.lengths_.begin() + first_row;
  const std::vector<int64_t> before(first, first + count_);
  const auto [shortest, longest] = std::ranges::minmax(before);
  seen_ = longest + new_tokens_;
  TORCH_CHECK(seen_ <= cache.capacity_, "a cache of ", cache.capacity_,
              " tokens a text can't take ", seen_);
  const at::Tensor starts = at::tensor(before, at::kLong).to(tokens.device()).unsqueeze(1);
  positions_ = starts + at::arange(new_tokens_, tokens.options());
  const at::Tensor rows = at::arange(first_row, first_row + count_, tokens.options());
  places_ = (rows.unsqueeze(1) * cache.capacity_ + positions_).flatten();
  is_causal_ = longest == 0;
  if (is_causal_ || (shortest == longest && new_tokens_ == 1)) return;
  const at::Tensor seen = at::arange(seen_, tokens.options());
  mask_ = (seen <= positions_.unsqueeze(2)).unsqueeze(1);
}

std::pair<at::Tensor, at::Tensor> CachedPass::extend(const at::Tensor& keys,
                                                     const at::Tensor& values) {
  auto& layers = cache_.layers_;
  if (next_layer_ == layers.size()) {
    // Zeros, as attention multiplies what its mask leaves out by 0.
    const auto rows = static_cast<int64_t>(cache_.lengths_.size());
    const auto memory_for = [&](const at::Tensor& part) {
      return at::zeros({rows, cache_.capacity_, part.size(2)}, part.options());
    };
    layers.push_back({memory_for(keys), memory_for(values)});
  }
  KeyValueCache::Layer& layer = layers[next_layer_++];
  const auto extended = [&](const at::Tensor& all, const at::Tensor& part) {
    all.flatten(0, 1).index_copy_(0, places_, part.flatten(0, 1));
    return all.narrow(0, first_row_, count_).narrow(1, 0, seen_);
  };
  return {extended(layer.keys, keys), extended(layer.values, values)};
}

void CachedPass::commit() {
  for (int64_t row = first_row_; row < first_row_ + count_; ++row) {
    cache_.lengths_[static_cast<size_t>(row)] += new_tokens_;
  }
}

}  // namespace brim::nn
