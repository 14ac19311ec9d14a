#include "framework/data/shards/shard_files.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/parallel.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/data/shards/pack.h"
#include "framework/data/shards/shard_list.h"

namespace brim::data {
namespace {

constexpr size_t kMaxOpen = 256;  // of the 1024 files that a process may usually have open

/// Indexes are read and made by waiting for a disk or a server more than by computing.
int64_t index_threads() {
  return std::clamp<int64_t>(4 * int64_t{std::thread::hardware_concurrency()}, 8, 32);
}

/// With the / at its end; empty: the current one.
std::string folder_of(const std::string& address) {
  const std::string shown = shown_address(address);
  return shown.substr(0, shown.rfind('/') + 1);
}

}  // namespace

ShardFiles::ShardFiles(std::vector<std::string> addresses, const CacheOptions& cache)
    : addresses_(std::move(addresses)), indexes_(addresses_.size()), slots_(addresses_.size()) {
  if (std::ranges::any_of(addresses_, is_url)) cache_ = std::make_unique<ShardCache>(cache);
  parallel_for(count(), index_threads(), [this](int64_t i) {
    if (stop_requested()) throw Error(Exit::kStopped, "stopped while the shards were indexed");
    indexes_[static_cast<size_t>(i)] = read_index(addresses_[static_cast<size_t>(i)]);
  });
  int64_t passed_over = 0;
  for (const ShardIndex& index : indexes_) passed_over += index.passed_over;
  if (passed_over != 0) {
    log::info("{} members of the shards belong to no sample and are passed over",
              format_count(passed_over));
  }
}

ShardIndex ShardFiles::read_index(const std::string& address) {
  return is_url(address) ? cache_->index(address) : open_index(address);
}

std::string ShardFiles::name(int64_t shard) const {
  return shown_address(addresses_[static_cast<size_t>(shard)]);
}

std::vector<std::string> ShardFiles::class_names() {
  const std::string folder = folder_of(addresses_.front());
  const bool is_one_folder = std::ranges::all_of(
      addresses_, [&](const std::string& address) { return folder_of(address) == folder; });
  if (!is_one_folder) return {};
  if (is_url(addresses_.front())) return cache_->class_names(addresses_.front());
  return class_names_in(folder + std::string(kPackDescription));
}

std::shared_ptr<const ByteSource> ShardFiles::find(int64_t shard) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(shard)];
  slot.last_use = ++uses_;
  return slot.file;
}

std::shared_ptr<const ByteSource> ShardFiles::open(int64_t shard) {
  if (auto file = find(shard)) return file;
  const std::lock_guard lock(slots_[static_cast<size_t>(shard)].opening);
  if (auto file = find(shard)) return file;
  auto file = open_file(shard);
  keep(shard, file);
  if (cache_ != nullptr) {
    while (!cache_->trim() && close_least_used(shard)) {
    }
  }
  return file;
}

std::shared_ptr<const ByteSource> ShardFiles::open_file(int64_t shard) {
  const std::string& address = addresses_[static_cast<size_t>(shard)];
  const ShardIndex& expected = index(shard);
  if (is_url(address)) return open_fetched(shard);
  const std::string advice = "start again once it is as it should be";
  auto file = std::make_shared<FileBytes>(address);
  check_shard(*file, expected, advice);
  if (file->modified_ns() != expected.shard_modified_ns) {
    throw Error(Exit::kData, "{}: changed since it was indexed; {}", address, advice);
  }
  return file;
}

/// A copy that was kept and is damaged is fetched again once.
std::shared_ptr<const ByteSource> ShardFiles::open_fetched(int64_t shard) {
  const std::string& address = addresses_[static_cast<size_t>(shard)];
  ShardIndex& expected = indexes_[static_cast<size_t>(shard)];
  for (bool is_kept = cache_->has(address);; is_kept = false) {
    auto file = cache_->open(address);
    std::string problem;
    if (file->size() != expected.shard_bytes) {
      cache_->forget_shard(address);  // it may be no shard at all, but a page of a proxy
      problem =
          fmt::format("expected {} bytes by its index, found {}, which is removed from the cache",
                      expected.shard_bytes, file->size());
    } else {
      try {
        if (cache_->fits(address, *file, expected)) return file;
        problem = "its samples are not those of its index";
      } catch (const Error& error) {  // it is removed
        if (!is_kept || error.status() != Exit::kData) throw;
        problem = error.what();
      }
    }
    if (!is_kept) refuse_index(shard, problem);
    log::warning("{}: the copy in the cache is fetched again: {}", name(shard), problem);
    cache_->forget_shard(address);
  }
}

/// What is at an address was replaced or was not sent, or its index was made of something else. A
/// start after this asks for all indexes again.
void ShardFiles::refuse_index(int64_t shard, std::string_view why) {
  for (const std::string& address : addresses_) {
    if (is_url(address)) cache_->forget_index(address);
  }
  throw Error(Exit::kData,
              "{}: {}: the shard or the index was replaced, or the server sent something else. "
              "Start again: they are fetched again, or an index is made. If the same is said then, "
              "the server's indexes are stale: run trainer data inspect where its shards lie",
              name(shard), why);
}

void ShardFiles::keep(int64_t shard, std::shared_ptr<const ByteSource> file) {
  {
    const std::lock_guard lock(mutex_);
    slots_[static_cast<size_t>(shard)].file = std::move(file);
    open_.push_back(shard);
    if (open_.size() <= kMaxOpen) return;
  }
  close_least_used(shard);
}

/// Closes the file that was used longest ago; those who still read it hold it open. False where
/// none is left but that of `but`.
bool ShardFiles::close_least_used(int64_t but) {
  const std::lock_guard lock(mutex_);
  const auto last_use = [&](int64_t shard) {
    return shard == but ? uses_ + 1 : slots_[static_cast<size_t>(shard)].last_use;
  };
  const auto least = std::ranges::min_element(open_, {}, last_use);
  if (least == open_.end() || *least == but) return false;
  slots_[static_cast<size_t>(*least)].file.reset();
  open_.erase(least);
  return true;
}

}  // namespace brim::data
