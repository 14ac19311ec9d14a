// What transforms a batch beside its normalisation: mixup (Zhang et al., ICLR 2018), cutmix (Yun et
// al., ICCV 2019) and random erasing (Zhong et al., AAAI 2020), with torchvision's distributions
// but one choice a pair. Pairs are positions 2j and 2j + 1 of an epoch; choices are a function of
// (seed, epoch, position), so micro-batches, ranks and restarts don't change them. Pixels are
// changed on the device (transform_images.h).
#pragma once

#include <cstdint>
#include <vector>

#include "framework/data/augment/image_change.h"
#include "framework/data/dataset.h"
#include "framework/recipe/fields.h"

namespace brim::data {

/// Part of [data.augment].
struct MixConfig {
  double mixup = 0;   // alpha of Beta(alpha, alpha), from which an image's share is drawn; 0: off
  double cutmix = 0;  // the same; both: each pair gets one of them, with probability ½
  double erase = 0;   // probability

  void fields(recipe::Fields& f);
  /// Whether pairs are mixed: then loaders must keep them together (LoaderOptions::pairs).
  bool mixes() const { return mixup > 0 || cutmix > 0; }
  /// Samples that a micro-batch must not part.
  int64_t unit() const { return mixes() ? 2 : 1; }
};

/// The changes of positions first … first + count - 1 of an epoch, partners as indices from
/// `first`; empty where nothing is on. The positions are a whole batch, or several: `first` is
/// even, and where count is odd the last position has no partner and is not mixed.
std::vector<ImageChange> draw_changes(const MixConfig& config, uint64_t seed, int64_t epoch,
                                      int64_t first, int64_t count, const ImageShape& shape);

/// The share of an image's own label: 1 less its partner's share of the pixels.
float label_share(const ImageChange& change, const ImageShape& shape);

}  // namespace brim::data
