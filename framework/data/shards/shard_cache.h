// Shards from http(s) addresses, kept whole in a folder. Several processes may use one folder: a
// shard is fetched by one of them while the others wait. A shard that is there is not asked for
// again: what is at an address is taken not to change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "framework/data/byte_source.h"
#include "framework/data/shards/http.h"
#include "framework/data/shards/shard_index.h"

namespace brim::data {

struct CacheOptions {
  std::filesystem::path folder;  // empty: default_cache_folder()
  int64_t budget_bytes = 0;      // a shard larger than that is refused; 0: no limit
  HttpLimits http = {};
};

/// brim/shards in $XDG_CACHE_HOME, else in ~/.cache. Throws Error(kResource) without either.
std::filesystem::path default_cache_folder();

/// Members may be called from several threads at once.
class ShardCache {
 public:
  /// Makes the folder.
  explicit ShardCache(CacheOptions options);

  /// The shard, fetched if it isn't there. While it is open it is not removed. Throws Error(kData)
  /// where it can't be had, Error(kResource) where it can't be written.
  std::shared_ptr<const ByteSource> open(const std::string& url);

  /// The shard's index: a kept one, else the file with the suffix .index beside the shard, else one
  /// made of the shard, which is fetched for that; said aloud once.
  ShardIndex index(const std::string& url);

  /// Removes the shards that were used longest ago and that nobody has open, until the rest keeps
  /// to the budget. False where that can't be done.
  bool trim();

  /// Where the shard is kept.
  std::filesystem::path path_of(const std::string& url) const;

 private:
  HttpLimits limits(int64_t max_bytes) const;

  std::filesystem::path folder_;
  CacheOptions options_;
};

}  // namespace brim::data
