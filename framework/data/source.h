// A source of data as a recipe names it: `[data] kind = "idx"` and that kind's own keys. It opens
// the training set and the evaluation set; config.h holds the rest of [data].
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/augment/augment.h"
#include "framework/data/dataset.h"
#include "framework/recipe/registry.h"

namespace brim::data {

struct ImageOptions;

/// Base of every source's config struct.
class SourceConfig : public recipe::Config {
 public:
  /// Opening finds every problem that needs no decoding: missing files and folders, wrong headers
  /// and lengths, empty classes. Never null. Throws Error(kData), or Error(kRecipe) where keys
  /// contradict.
  virtual std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const = 0;

  /// Null where the recipe names no evaluation data. Shape and classes are those of training, else
  /// check_evaluation() ends the run.
  virtual std::unique_ptr<Dataset> open_eval() const = 0;

  /// The same for a model that has learned `classes`, by label and printable; without the training
  /// data, where the source can do so. Throws Error(kData) for samples of other classes.
  virtual std::unique_ptr<Dataset> open_eval_for(
      const std::vector<std::string>& /*classes*/) const {
    return open_eval();
  }

  /// What it keeps of samples in memory, at most.
  virtual int64_t cache_bytes() const { return 0; }

  /// How image files become samples; null where none are read.
  virtual const ImageOptions* image_options() const { return nullptr; }

  /// The shape of its rows of tokens where its keys alone give that; nullopt: its files do.
  virtual std::optional<TokenShape> token_shape() const { return std::nullopt; }

  /// The folder with the tokenizer that made its tokens (text/tokenizer_files.h); empty: none is
  /// known.
  virtual std::filesystem::path tokenizer_folder() const { return {}; }
};

/// Registers every kind in recipe::registry<SourceConfig>(); call once at program start.
void register_sources();

}  // namespace brim::data
