// The shards of a dataset as open files: opened when first read, a limited number at a time, those
// from the web by way of a cache (shard_cache.h). What is in them is shard_index.h's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/shards/shard_cache.h"
#include "framework/data/shards/shard_index.h"
#include "framework/data/sources/byte_source.h"

namespace brim::data {

/// Members may be called from several threads at once.
class ShardFiles {
 public:
  /// The cache is made where an address is a URL. All indexes are read or made before this returns,
  /// by several threads. Throws Error(kData) for the first shard that fails.
  ShardFiles(std::vector<std::string> addresses, const CacheOptions& cache);

  int64_t count() const { return static_cast<int64_t>(indexes_.size()); }
  const ShardIndex& index(int64_t shard) const { return indexes_[static_cast<size_t>(shard)]; }
  /// What errors call it.
  std::string name(int64_t shard) const;

  /// The names of the classes, by label, that `trainer data pack` left beside the shards; empty
  /// where there are none, or where shards lie in several folders. Throws Error(kData).
  std::vector<std::string> class_names();

  /// The open shard. Opens or fetches it where need be, one caller for all that wait. Throws
  /// Error(kData) where it can't be had, or isn't the one that was indexed.
  std::shared_ptr<const ByteSource> open(int64_t shard);

 private:
  struct Slot {
    std::mutex opening;
    // Guarded by mutex_.
    std::shared_ptr<const ByteSource> file;
    int64_t last_use = 0;
  };

  ShardIndex read_index(const std::string& address);
  std::shared_ptr<const ByteSource> find(int64_t shard);
  std::shared_ptr<const ByteSource> open_file(int64_t shard);
  std::shared_ptr<const ByteSource> open_fetched(int64_t shard);
  [[noreturn]] void refuse_index(int64_t shard, std::string_view why);
  void keep(int64_t shard, std::shared_ptr<const ByteSource> file);
  bool close_least_used(int64_t but);

  const std::vector<std::string> addresses_;
  std::unique_ptr<ShardCache> cache_;
  std::vector<ShardIndex> indexes_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::vector<int64_t> open_;  // shards whose slot holds a file
  int64_t uses_ = 0;
};

}  // namespace brim::data
