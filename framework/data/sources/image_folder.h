// `kind = "image_folder"`: JPEG and PNG files in a folder per class, as torchvision's ImageFolder
// reads them: classes are the folders in order of their names, samples the files below them.
#pragma once

#include <filesystem>
#include <memory>

#include "framework/data/source.h"
#include "framework/data/sources/image_dataset.h"

namespace brim::data {

struct ImageFolderConfig : SourceConfig {
  std::filesystem::path train;
  std::filesystem::path eval;  // empty: no evaluation data
  ImageOptions options;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  std::unique_ptr<Dataset> open_eval() const override;
  /// Folders may be fewer than the classes, to whose names theirs are matched.
  std::unique_ptr<Dataset> open_eval_for(const std::vector<std::string>& classes) const override;
  int64_t cache_bytes() const override { return options.cache_bytes(); }
  const ImageOptions* image_options() const override { return &options; }
};

/// The images of a folder that has a folder for each class. Throws Error(kData).
std::unique_ptr<EncodedImages> open_image_folder(const std::filesystem::path& root);

}  // namespace brim::data
