// Writes images to tar shards with their indexes, in an order that mixes classes. Shards that are
// whole are kept, so that a pack that was stopped continues where it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/sources/encoded_images.h"

namespace brim::data {

/// The file beside the shards that says what they were made of.
inline constexpr std::string_view kPackDescription = "pack.json";

struct PackOptions {
  int64_t samples = 1000;  // of a shard; the last one may have fewer
  int64_t shard_bytes =
      0;  // a shard that holds as many is closed before it has all its samples; 0: no limit
  int64_t resize =
      0;             // images with a longer shorter side are brought to it; 0: all stay as they are
  int quality = 95;  // of the JPEG that a resized image becomes
  uint64_t seed = 0;    // of the order
  int64_t threads = 1;  // that read and encode
};

struct PackProgress {
  int64_t done = 0;  // images in shards by now
  int64_t images = 0;
  int64_t shards = 0;
  int64_t kept_shards = 0;  // of them those that were there before
  int64_t bytes = 0;        // of the shards
};

/// Writes shard-000000.tar, shard-000001.tar, … and pack.json, which says what they were made of.
/// A sample's key is its position in the order. `report` is called now and then from this thread.
/// Throws Error(kData) for images that can't be read or are neither JPEG nor PNG, and for a folder
/// with other shards or those of another pack; Error(kResource) where it can't be written;
/// Error(kStopped) on request.
PackProgress pack(const EncodedImages& images, const std::filesystem::path& folder,
                  const PackOptions& options,
                  const std::function<void(const PackProgress&)>& report = {});

/// How many images the whole pack has, by a pack.json of pack()'s; nullopt where it is missing or
/// says something else. Throws Error(kData) where it can't be read.
std::optional<int64_t> image_count_in(const std::filesystem::path& description);

/// The names of the classes, by label, in a pack.json of pack()'s; empty where it is missing or
/// says something else. Throws Error(kData) where it can't be read.
std::vector<std::string> class_names_in(const std::filesystem::path& description);

}  // namespace brim::data
