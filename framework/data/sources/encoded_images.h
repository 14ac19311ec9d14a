// Images as files hold them, with their labels: files in a folder per class, members of tar shards.
// Decoding and augmenting them is image_dataset.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace brim::data {

/// Const members may be called from several threads at once.
class EncodedImages {
 public:
  virtual ~EncodedImages() = default;

  virtual int64_t size() const = 0;
  /// By label; labels lie in [0, class_names().size()).
  virtual std::vector<std::string> class_names() const = 0;
  /// Image `index` as people find it, for errors.
  virtual std::string name(int64_t index) const = 0;
  virtual int64_t label(int64_t index) const = 0;
  /// The encoded image: in `buffer`, whose memory is used again, or in memory that lives as long as
  /// this object. Throws Error(kData) naming the image.
  virtual std::span<const uint8_t> bytes(int64_t index, std::vector<uint8_t>& buffer) const = 0;
  /// Throws Error(kData) naming the first of the images without bytes. Files are looked at one in
  /// each class and up to a thousand in all parts of the set, images in shards all of them.
  virtual void check_files() const {}
  /// Where the images lie in shards that are best read from front to back: the number of images up
  /// to and including each shard. Empty: any order is as good.
  virtual std::span<const int64_t> shard_ends() const { return {}; }
};

}  // namespace brim::data
