// A dataset: numbered samples, each an image of one fixed shape and a label. Order, batches and
// threads are the loader's (loader.h); how a recipe names a dataset is source.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/base/random.h"

namespace brim::data {

/// Pixels are uint8, [height, width, channels], channels innermost.
struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;

  /// Bytes of one image.
  int64_t bytes() const { return height * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// Const members may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  /// Every sample has this shape.
  virtual ImageShape shape() const = 0;
  /// Labels lie in [0, classes()).
  virtual int64_t classes() const = 0;
  /// classes() names, by label.
  virtual std::vector<std::string> class_names() const = 0;
  /// Sample `index` as people find it: a file's path, or "images.idx[17]".
  virtual std::string name(int64_t index) const = 0;

  /// Writes sample `index` to `pixels`, shape().bytes() of them, and returns its label. `random`
  /// drives augmentation; null: none, as for evaluation. Throws Error(kData) naming the sample.
  virtual int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const = 0;

  /// Where samples lie in shards that are best read from front to back: the number of samples up to
  /// and including each shard. Empty: any order is as good.
  virtual std::span<const int64_t> shard_ends() const { return {}; }
};

/// "0", "1", …: names for classes that have none.
std::vector<std::string> numbered_classes(int64_t classes);

}  // namespace brim::data
