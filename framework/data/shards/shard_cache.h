// Shards from http(s) addresses, kept whole in a folder. Several processes may use one folder: a
// shard is fetched by one of them while the others wait. A shard that is there is not asked for
// again: what is at an address is taken not to change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/data/shards/http.h"
#include "framework/data/shards/shard_index.h"
#include "framework/data/sources/byte_source.h"

namespace brim::data {

struct CacheOptions {
  std::filesystem::path folder;  // empty: default_cache_folder()
  int64_t budget_bytes = 0;      // a shard larger than that is refused; 0: see body_limit.h
  HttpLimits http = {};
};

/// brim/shards in $XDG_CACHE_HOME, else in ~/.cache. Throws Error(kResource) without either.
std::filesystem::path default_cache_folder();

/// Members may be called from several threads at once.
class ShardCache {
 public:
  /// Makes the folder, and removes from it what killed processes left of fetching.
  explicit ShardCache(CacheOptions options);

  /// The shard, fetched if it isn't there. While it is open it is not removed. Throws Error(kData)
  /// where it can't be had, Error(kResource) where it can't be written. One that was too large is
  /// not asked for again.
  std::shared_ptr<const FileBytes> open(const std::string& url);

  /// The shard's index: a kept one, else one made of a kept shard, else the file with the suffix
  /// .index beside the shard, else one made of the shard, which is fetched for that; logged once.
  /// A shard of which none can be made is removed.
  ShardIndex index(const std::string& url);

  /// Makes sure that `index` is that of the shard, which is read for it unless it was before. False
  /// where it is another's.
  bool fits(const std::string& url, const FileBytes& shard, ShardIndex& index);

  /// Whether the shard is kept, so that open() fetches nothing.
  bool has(const std::string& url) const;

  /// Removes a shard; those who have it open still read it.
  void forget_shard(const std::string& url);

  /// Removes what is kept of a shard's index.
  void forget_index(const std::string& url);

  /// The names of the classes, by label, from pack.json beside the shard; kept, as is that the
  /// server has none. Empty without them; where the server fails, that is logged.
  std::vector<std::string> class_names(const std::string& url);

  /// Removes the shards that were used longest ago and that no one has open, until the rest keeps
  /// to the budget. False where that can't be done.
  bool trim();

  /// Where the shard is kept.
  std::filesystem::path path_of(const std::string& url) const;

 private:
  struct Refusal {
    Exit status;
    std::string reason;
  };

  /// Of an object that may have `max_bytes`, or what the budget allows; 0: the latter alone.
  HttpLimits limits(int64_t max_bytes) const;
  /// False where the server has none.
  bool fetch(const std::string& url, const std::filesystem::path& path, const HttpLimits& limits);
  ShardIndex make_index(const std::string& url, const FileBytes& shard);
  /// Throws TooLargeError where the object was too large before.
  void refuse_again(const std::string& url);

  std::filesystem::path folder_;
  CacheOptions options_;
  std::mutex mutex_;
  std::map<std::string, Refusal> too_large_;  // by address; guarded by mutex_
};

}  // namespace brim::data
