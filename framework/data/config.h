// The [data] section: a source, how it is read, augmented and normalised.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "framework/data/augment/augment.h"
#include "framework/data/order/plan.h"
#include "framework/data/sampler.h"
#include "framework/data/source.h"
#include "framework/recipe/registry.h"

namespace brim::data {

/// Per channel, in units where a pixel is 0…1: a model sees (pixel / 255 - mean) / std.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

/// [data.sampler]
struct SamplerSection {
  recipe::Slot<SamplerConfig> sampler{"shuffled"};

  void fields(recipe::Fields& f);
};

struct DataConfig {
  recipe::Slot<SourceConfig> source{""};  // no default: a recipe names its data
  std::optional<int64_t> workers;         // nullopt: as many as it takes, but leaving a core
  int64_t prefetch = 2;
  bool drop_last = false;
  bool skip_bad = false;  // on_error = "skip"
  int64_t max_skipped = 100;
  SamplerSection sampler;
  AugmentConfig augment;
  std::vector<double> mean;  // empty: the default for the number of channels
  std::vector<double> std;

  void fields(recipe::Fields& f);

  /// Throws Error(kRecipe) where keys contradict each other; logs which have no effect.
  void check() const;
  /// Not null. Throws Error(kRecipe) too where the images can't be augmented as asked, and what
  /// check_samples() does.
  std::unique_ptr<Dataset> open_train() const;
  std::unique_ptr<Dataset> open_eval() const { return source->open_eval(); }
  /// The order of training samples. Errors are SamplerConfig's.
  std::shared_ptr<const Order> order(const Dataset& train, const OrderOptions& options) const {
    return sampler.sampler->order(train, options);
  }
  /// What the recipe says of loading, for training: batches and order are the caller's.
  LoaderOptions train_options() const;
  /// The same for evaluation: in order, once.
  LoaderOptions eval_options() const;
  /// As given, else ImageNet's statistics for 3 channels and mean ½, deviation ½ for others. Throws
  /// Error(kRecipe) where the lists don't have one value a channel.
  Normalization normalization(int64_t channels) const;
};

}  // namespace brim::data
