// `kind = "webdataset"`: JPEG and PNG images with their labels in tar shards, as the Python package
// webdataset writes them, on a disk or at an http(s) address.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/shards/shard_cache.h"
#include "framework/data/source.h"
#include "framework/data/sources/encoded_images.h"
#include "framework/data/sources/image_dataset.h"

namespace brim::data {

struct WebDatasetConfig : SourceConfig {
  std::filesystem::path train;
  std::filesystem::path eval;       // empty: no evaluation data
  std::optional<int64_t> classes;   // nullopt: one more than the greatest training label
  std::filesystem::path cache_dir;  // empty: default_cache_folder()
  int64_t cache_gib = 0;            // 0: no limit
  ImageOptions options;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  std::unique_ptr<Dataset> open_eval() const override;
  std::unique_ptr<Dataset> open_eval_for(const std::vector<std::string>& classes) const override;
  int64_t cache_bytes() const override { return options.cache_bytes(); }
  const ImageOptions* image_options() const override { return &options; }

 private:
  /// The classes that open_train() found, and where: open_eval() needn't list all shards again.
  struct Found {
    std::filesystem::path train;
    int64_t classes;
    std::vector<std::string> names;  // empty: not known
  };
  Found train_classes() const;

  mutable std::optional<Found> found_;
};

/// The images of the shards that `pattern` (shard_list.h) stands for. `classes`: nullopt: one more
/// than the greatest label. Throws Error(kData) for shards that can't be read, without samples, or
/// with a label that is no class.
std::unique_ptr<EncodedImages> open_shards(const std::string& pattern,
                                           std::optional<int64_t> classes,
                                           const CacheOptions& cache);

}  // namespace brim::data
