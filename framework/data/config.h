// The [data] section: a source, how it is read, augmented and normalised.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "framework/data/augment.h"
#include "framework/data/source.h"
#include "framework/recipe/part.h"

namespace brim::data {

/// Per channel, in units where a pixel is 0…1: a model sees (pixel / 255 - mean) / std.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> std;
};

struct DataConfig {
  recipe::Slot<SourceConfig> source{""};  // no default: a recipe names its data
  std::optional<int64_t> workers;         // nullopt: one less than the cores, at least one
  int64_t prefetch = 2;
  bool drop_last = false;
  AugmentConfig augment;
  std::vector<double> mean;  // empty: the default for the number of channels
  std::vector<double> std;

  void fields(recipe::Fields& f);

  /// Throws Error(kRecipe) where keys contradict each other; says aloud which have no effect.
  void check() const;
  /// Throws Error(kRecipe) too where the images can't be augmented as asked.
  std::unique_ptr<Dataset> open_train() const;
  std::unique_ptr<Dataset> open_eval() const { return source->open_eval(); }
  /// Cores that this process may use, less one for the training loop.
  int64_t worker_count() const;
  /// As given, else ImageNet's statistics for 3 channels and mean ½, deviation ½ for others. Throws
  /// Error(kRecipe) where the lists don't have one value a channel.
  Normalization normalization(int64_t channels) const;
};

}  // namespace brim::data
