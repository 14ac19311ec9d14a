// A dataset: numbered samples, each of the same number of bytes, with a label where it has one.
// Order, batches and threads are the loader's (loader.h); how a recipe names a dataset is
// source.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/random.h"
#include "framework/device/drawn_jpeg.h"

namespace brim::data {

class ImageSamples;
class TokenSamples;

/// A sample that is read with others, and where to: see Dataset::read().
struct SampleRequest {
  int64_t sample = 0;
  std::optional<RandomStream> random = {};  // nullopt: no augmentation
  std::span<uint8_t> bytes;
  bool is_read = false;
};

/// Const members may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// What kind it is: the dataset itself as one of these, which say the shape of a sample. Tasks
  /// take no other kind.
  virtual const ImageSamples* images() const { return nullptr; }
  virtual const TokenSamples* tokens() const { return nullptr; }

  /// At least 1.
  virtual int64_t size() const = 0;
  /// What one sample takes in a batch.
  virtual int64_t sample_bytes() const = 0;
  /// Sample `index` as people find it: a file's path, or "images.idx[17]".
  virtual std::string name(int64_t index) const = 0;

  /// Labels lie in [0, classes()); 0: samples have none, and what stands for it is 0.
  virtual int64_t classes() const { return 0; }
  /// Known without reading the sample.
  virtual int64_t label(int64_t /*index*/) const { return 0; }
  /// What a sample counts in the mean loss of a step; known without reading it. See is_weighted().
  virtual int64_t weight(int64_t /*index*/) const { return 1; }
  /// Whether samples differ in their weights.
  virtual bool is_weighted() const { return false; }
  /// How much of its row a sample fills, in tokens; nullopt where all samples are alike.
  virtual std::optional<int64_t> length(int64_t /*index*/) const { return std::nullopt; }

  /// Writes sample `index` to `bytes`, sample_bytes() of them, and returns label(index). `random`
  /// drives augmentation; null: none, as for evaluation. Throws Error(kData) naming the sample.
  virtual int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> bytes) const = 0;

  /// How many samples are best read together where a device decodes files; 1: the dataset has none
  /// for it.
  virtual int64_t samples_together() const { return 1; }
  /// Reads samples as read() does, up to how the device rounds, of which `draw` is. Those that
  /// can't be read stay as they are: read() tells what is wrong with them.
  virtual void read_together(std::span<SampleRequest> /*requests*/,
                             const device::DrawJpegs& /*draw*/) const {}

  /// Looks at what tells of bad data without reading samples, at some of many: for `--dry-run`.
  /// Throws Error(kData) naming the first bad sample.
  virtual void check_files() const {}

  /// Where samples lie in shards that are best read from front to back: the number of samples up to
  /// and including each shard. Empty: any order is as good.
  virtual std::span<const int64_t> shard_ends() const { return {}; }
};

/// Pixels are uint8, [height, width, channels], channels innermost.
struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;

  /// Bytes of one image.
  int64_t bytes() const { return height * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// Images of one shape, each of a class.
class ImageSamples : public Dataset {
 public:
  const ImageSamples* images() const final { return this; }
  /// Every sample has this shape, those of evaluation too. All three are at least 1.
  virtual ImageShape shape() const = 0;
  int64_t sample_bytes() const final { return shape().bytes(); }
  /// At least 1, and as many in training as in evaluation.
  int64_t classes() const override = 0;
  /// classes() names, by label.
  virtual std::vector<std::string> class_names() const = 0;
  int64_t label(int64_t index) const override = 0;
};

/// Rows of token ids for a model that predicts each from those before it. A sample's bytes are
/// int32: length + 1 tokens, of which a model sees all but the last and predicts all but the first;
/// or three such planes, as sources/tokens.h has them.
struct TokenShape {
  int64_t length = 0;
  int64_t vocabulary = 0;      // each token is in [0, vocabulary)
  bool has_documents = false;  // three planes: tokens, positions, segments

  int64_t bytes() const {
    return (has_documents ? 3 : 1) * (length + 1) * static_cast<int64_t>(sizeof(int32_t));
  }
  bool operator==(const TokenShape&) const = default;
};

class TokenSamples : public Dataset {
 public:
  const TokenSamples* tokens() const final { return this; }
  /// Every sample has this shape, those of evaluation too.
  virtual TokenShape shape() const = 0;
  int64_t sample_bytes() const final { return shape().bytes(); }
};

/// Throws Error(kData) for data without a sample, and for shapes and numbers of classes that none
/// can have. `which` they are: "training", "evaluation".
void check_samples(const Dataset& dataset, std::string_view which);
/// Of evaluation data, which may be null: the same, and where their samples look otherwise to a
/// model than those of training.
void check_evaluation(const Dataset& train, const Dataset* eval);

/// Tells data from others of as many samples: 32 hex digits of the labels, of two million where
/// there are more, of some names without their folders, and of some rows of tokens. The same data
/// at another path have the same.
std::string digest_of(const Dataset& dataset);

/// The same images with every pixel 0, read from nowhere: for a rank that needs labels alone. Other
/// data are as they were.
std::unique_ptr<Dataset> labels_alone(std::unique_ptr<Dataset> dataset);

/// "0", "1", …: names for classes that have none.
std::vector<std::string> numbered_classes(int64_t classes);

}  // namespace brim::data
