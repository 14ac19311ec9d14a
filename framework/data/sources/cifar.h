// `kind = "cifar"`: the binary versions of CIFAR-10 and CIFAR-100, 32 × 32 RGB images.
// A record is the label (CIFAR-100: the coarse one, then the fine one), then 1024 bytes each of
// red, green and blue. https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/data/source.h"
#include "framework/data/sources/byte_source.h"

namespace brim::data {

enum class CifarLabels { kFine, kCoarse };

/// What the records of a file look like and which label is taken.
struct CifarFormat {
  bool has_two_labels = false;  // CIFAR-100
  CifarLabels labels = CifarLabels::kFine;
  std::vector<std::string> class_names;
};

/// The images of the files, one behind the other. Throws Error(kData) where a file doesn't hold
/// whole records, or holds none, or a label that has no name.
std::unique_ptr<ImageSamples> open_cifar(std::vector<std::unique_ptr<ByteSource>> files,
                                         const CifarFormat& format, const AugmentConfig& augment);

struct CifarConfig : SourceConfig {
  std::filesystem::path path;
  CifarLabels labels = CifarLabels::kFine;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Dataset> open_train(const AugmentConfig& augment) const override;
  /// The folder's test file; null where there is none.
  std::unique_ptr<Dataset> open_eval() const override;
};

}  // namespace brim::data
