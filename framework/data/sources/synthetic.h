// Images made from nothing, for benchmarks and first trials: a coarse pattern that belongs to the
// class, under noise that belongs to the sample. The same on every machine and with every seed.
#pragma once

#include <memory>

#include "framework/data/source.h"

namespace brim::data {

struct SyntheticConfig : SourceConfig {
  int64_t samples = 10'000;
  int64_t eval_samples = 1'000;
  int64_t classes = 10;
  int64_t height = 32;
  int64_t width = 32;
  int64_t channels = 3;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  std::unique_ptr<Dataset> open_eval() const override;
};

}  // namespace brim::data
