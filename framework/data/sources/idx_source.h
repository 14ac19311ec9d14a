// `kind = "idx"`: images and labels in IDX files (idx.h), as MNIST comes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "framework/data/source.h"

namespace brim::data {

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

struct IdxConfig : SourceConfig {
  IdxFiles train;
  IdxFiles eval;                   // both paths empty: no evaluation data
  std::optional<int64_t> classes;  // nullopt: one more than the greatest training label

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  std::unique_ptr<Dataset> open_eval() const override;
  std::unique_ptr<Dataset> open_eval_for(const std::vector<std::string>& classes) const override;

 private:
  /// Throws Error(kRecipe) where one of the two is missing.
  bool has_eval() const;
};

}  // namespace brim::data
