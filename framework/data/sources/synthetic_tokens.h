// Rows of tokens made from nothing, for benchmarks, probes and first trials: each token follows
// from the one before it by a rule with some chance in it. The same on every machine and with every
// seed.
#pragma once

#include <memory>

#include "framework/data/source.h"

namespace brim::data {

struct SyntheticTokensConfig : SourceConfig {
  int64_t samples = 10'000;
  int64_t eval_samples = 1'000;
  int64_t vocabulary = 256;
  int64_t length = 128;
  bool documents = false;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  std::unique_ptr<Dataset> open_eval() const override;
};

}  // namespace brim::data
