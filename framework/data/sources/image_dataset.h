// Encoded images as a dataset: decoded, cropped, resized and augmented to one shape. Every source
// of JPEG and PNG images uses it.
#pragma once

#include <memory>

#include "framework/data/augment/augment.h"
#include "framework/data/dataset.h"
#include "framework/data/sources/encoded_images.h"

namespace brim::data {

/// What of an image is kept in memory after it was first read.
enum class CacheKind { kNone, kEncoded, kDecoded };

/// The keys that all sources of encoded images have in [data].
struct ImageOptions {
  int64_t image_size = 224;
  int64_t resize = 256;
  Filter interpolation = Filter::kBilinear;
  bool on_gpu = false;  // decode = "gpu"
  bool fast_decode = false;
  CacheKind cache = CacheKind::kNone;
  double cache_gib = 4.0;

  void fields(recipe::Fields& f);
  /// Throws Error(kRecipe) where keys contradict each other; logs which have no effect.
  void check() const;
  /// The same for images of that side, before their centre is cut out.
  void check_resize(int64_t side) const;
  int64_t cache_bytes() const;
  /// The same without a cache: evaluation sees each image once in a while.
  ImageOptions for_evaluation() const;
};

std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<EncodedImages> images,
                                            const ImageOptions& options,
                                            const AugmentConfig& augment);

}  // namespace brim::data
