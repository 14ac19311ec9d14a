#include "framework/data/shards/shard_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/temporaries.h"
#include "framework/data/shards/pack.h"
#include "framework/data/shards/shard_list.h"

namespace brim::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPartSuffix = ".part";
constexpr size_t kDigestDigits = 32;
constexpr int64_t kMaxStoredIndexBytes = int64_t{1} << 30;
constexpr int64_t kMaxClassesBytes = int64_t{64} << 20;
constexpr int kTriesForClasses = 2;  // training does without

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

/// A file that is being fetched. It is locked, so that one process fetches while others wait.
class PartFile {
 public:
  explicit PartFile(const fs::path& whole) : whole_(whole), path_(whole) {
    path_ += kPartSuffix;
    do {
      if (fd_ >= 0) ::close(fd_);
      fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (fd_ < 0) {
        throw Error(Exit::kResource, "{}: cannot create: {}", path_.string(), errno_text(errno));
      }
      wait_for_lock();
    } while (!is_current());  // who held the lock before us finished it, or gave it up
  }
  ~PartFile() {
    if (!is_done_) ::unlink(path_.c_str());
    ::close(fd_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  int fd() const { return fd_; }
  const fs::path& path() const { return path_; }

  /// The file appears under its own name.
  void commit() {
    if (::fsync(fd_) != 0 || ::rename(path_.c_str(), whole_.c_str()) != 0) {
      throw Error(Exit::kResource, "{}: cannot write: {}", whole_.string(), errno_text(errno));
    }
    is_done_ = true;
    sync_folder(whole_.parent_path());
  }

 private:
  /// Without the lock where the file is whole meanwhile: its readers hold it as long as they like.
  void wait_for_lock() {
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && (errno == EINTR || errno == EWOULDBLOCK)) {
      if (!is_current()) return;
      if (sleep_unless_stopped(kStopPoll)) continue;
      ::close(fd_);
      throw Error(Exit::kStopped, "stopped while another process fetched {}", whole_.string());
    }
  }

  bool is_current() const {
    struct stat ours {};
    struct stat named {};
    return ::fstat(fd_, &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           ours.st_ino == named.st_ino;
  }

  fs::path whole_;
  fs::path path_;
  int fd_ = -1;
  bool is_done_ = false;
};

/// Sets the time of last use, by which trim() chooses.
void touch(const fs::path& path) {
  const std::array<timespec, 2> times = {timespec{0, UTIME_NOW}, timespec{0, UTIME_OMIT}};
  ::utimensat(AT_FDCWD, path.c_str(), times.data(), 0);
}

/// A shard in the folder.
struct Kept {
  fs::path path;
  int64_t bytes;
  timespec used;
};

bool is_ours(std::string_view name) {
  return name.size() > kDigestDigits && name[kDigestDigits] == '-' &&
         name.find_first_not_of("0123456789abcdef") == kDigestDigits;
}

bool is_shard_name(std::string_view name) {
  return is_ours(name) && !name.ends_with(kPartSuffix) && !name.ends_with(kIndexSuffix) &&
         !name.ends_with(kPackDescription) && target_of_temporary(name).empty();
}

/// Those used longest ago come first.
std::vector<Kept> kept_shards(const fs::path& folder) {
  std::vector<Kept> kept;
  std::error_code code;
  fs::directory_iterator it(folder, code);
  for (; !code && it != fs::directory_iterator(); it.increment(code)) {
    struct stat info {};
    if (!is_shard_name(it->path().filename().string())) continue;
    if (::stat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    kept.push_back({it->path(), info.st_size, info.st_atim});
  }
  std::ranges::sort(
      kept, {}, [](const Kept& shard) { return std::pair(shard.used.tv_sec, shard.used.tv_nsec); });
  return kept;
}

/// Removes a shard, unless a reader has it open.
bool remove_unused(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  const bool is_unused = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (is_unused) ::unlink(path.c_str());
  ::close(fd);
  return is_unused;
}

/// The address of a shard's index: the suffix goes before a query.
std::string index_url(const std::string& url) {
  const size_t end = std::min(url.find_first_of("?#"), url.size());
  return url.substr(0, end) + std::string(kIndexSuffix) + url.substr(end);
}

std::optional<ShardIndex> kept_index(const fs::path& path, const std::string& where) {
  if (!is_there(path)) return {};
  try {
    return parse_index(read_file(path, Exit::kData, kMaxStoredIndexBytes), where);
  } catch (const Error& error) {
    log::warning("{}", error.what());
    std::error_code code;
    fs::remove(path, code);
    return {};
  }
}

}  // namespace

fs::path default_cache_folder() {
  const fs::path folder = cache_folder("shards");
  if (!folder.empty()) return folder;
  throw Error(Exit::kResource,
              "shards from the web need a folder: neither data.shard_cache nor $XDG_CACHE_HOME nor "
              "$HOME names one");
}

ShardCache::ShardCache(CacheOptions options) : options_(std::move(options)) {
  folder_ = options_.folder.empty() ? default_cache_folder() : options_.folder;
  make_folder(folder_);
  remove_stale_files(folder_, [](std::string_view name) {
    return is_ours(name) && (name.ends_with(kPartSuffix) || !target_of_temporary(name).empty());
  });
}

bool ShardCache::fetch(const std::string& url, const fs::path& path, const HttpLimits& limits) {
  if (is_there(path)) return true;
  refuse_again(url);
  PartFile part(path);
  if (is_there(path)) return true;  // another process was faster
  refuse_again(url);                // another thread has tried
  try {
    if (download(url, part.fd(), part.path(), limits) == Download::kMissing) return false;
  } catch (const TooLargeError& error) {
    const std::lock_guard lock(mutex_);
    too_large_[url] = {error.status(), error.what()};
    throw;
  }
  part.commit();
  return true;
}

void ShardCache::refuse_again(const std::string& url) {
  const std::lock_guard lock(mutex_);
  const auto found = too_large_.find(url);
  if (found != too_large_.end()) throw TooLargeError(found->second.status, found->second.reason);
}

fs::path ShardCache::path_of(const std::string& url) const {
  constexpr size_t kLongestName = 100;
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  std::string name = shown_address(url);
  name.erase(0, name.rfind('/') + 1);
  if (name.size() > kLongestName) name.erase(0, name.size() - kLongestName);
  for (char& c : name) c = kPlain.find(c) == std::string_view::npos ? '_' : c;
  // The digest of the whole address, its query included, tells shards of one name apart.
  return folder_ / fmt::format("{}-{}", digest(std::as_bytes(std::span(url))), name);
}

HttpLimits ShardCache::limits(int64_t max_bytes) const {
  HttpLimits limits = options_.http;
  const int64_t budget = options_.budget_bytes;
  limits.max_bytes =
      budget == 0 || max_bytes == 0 ? std::max(budget, max_bytes) : std::min(budget, max_bytes);
  return limits;
}

std::shared_ptr<const FileBytes> ShardCache::open(const std::string& url) {
  const fs::path path = path_of(url);
  constexpr int kTries = 3;  // another process may remove it between fetching and opening
  for (int i = 1;; ++i) {
    if (!fetch(url, path, limits(0))) {
      throw Error(Exit::kData, "{}: the server has no such shard, or not for us",
                  shown_address(url));
    }
    touch(path);
    try {
      auto file = std::make_unique<FileBytes>(path, shown_address(url));
      file->hold();
      return {file.release(), [path](const FileBytes* used) {
                touch(path);
                delete used;
              }};
    } catch (const Error&) {
      if (i == kTries || is_there(path)) throw;
    }
  }
}

ShardIndex ShardCache::index(const std::string& url) {
  const fs::path shard = path_of(url);
  const fs::path path = index_path(shard);
  if (auto index = kept_index(path, path.string())) return std::move(*index);
  if (!is_there(shard)) {
    if (fetch(index_url(url), path, limits(kMaxStoredIndexBytes))) {
      if (auto index = kept_index(path, shown_address(index_url(url)))) return std::move(*index);
    }
    static std::atomic<bool> said = false;
    if (!said.exchange(true)) {
      log::info(
          "{}: the server has no index of it; shards without one are fetched now, to index them",
          shown_address(url));
    }
  }
  ShardIndex index = make_index(url, *open(url));
  store_index(shard, index);
  trim();
  return index;
}

ShardIndex ShardCache::make_index(const std::string& url, const FileBytes& shard) {
  try {
    ShardIndex index = build_index(shard);
    index.shard_modified_ns = shard.modified_ns();
    return index;
  } catch (const Error& error) {
    if (error.status() != Exit::kData) throw;
    forget_shard(url);
    throw Error(Exit::kData, "{}; it is removed from {} and fetched again by the next start",
                error.what(), folder_.string());
  }
}

bool ShardCache::fits(const std::string& url, const FileBytes& shard, ShardIndex& index) {
  if (index.shard_modified_ns == shard.modified_ns()) return true;
  const ShardIndex found = make_index(url, shard);
  if (found.samples != index.samples || found.names != index.names ||
      found.name_ends != index.name_ends) {
    return false;
  }
  index.shard_modified_ns = found.shard_modified_ns;
  store_index(path_of(url), index);
  return true;
}

bool ShardCache::has(const std::string& url) const { return is_there(path_of(url)); }

void ShardCache::forget_shard(const std::string& url) {
  std::error_code code;
  fs::remove(path_of(url), code);
}

void ShardCache::forget_index(const std::string& url) {
  std::error_code code;
  fs::remove(index_path(path_of(url)), code);
}

std::vector<std::string> ShardCache::class_names(const std::string& url) {
  const size_t end = std::min(url.find_first_of("?#"), url.size());
  const size_t name = url.rfind('/', end) + 1;
  const std::string beside = url.substr(0, name) + std::string(kPackDescription) + url.substr(end);
  const fs::path path = path_of(beside);
  HttpLimits limits = this->limits(kMaxClassesBytes);
  limits.tries = std::min(limits.tries, kTriesForClasses);
  try {
    if (!fetch(beside, path, limits)) write_file(path, "{}\n");  // not asked for again
    return class_names_in(path);
  } catch (const Error& error) {
    if (error.status() == Exit::kStopped) throw;
    log::warning("{}; classes are shown by their numbers", error.what());
    return {};
  }
}

bool ShardCache::trim() {
  if (options_.budget_bytes == 0) return true;
  const auto kept = kept_shards(folder_);
  int64_t bytes = 0;
  for (const Kept& shard : kept) bytes += shard.bytes;
  for (const Kept& shard : kept) {
    if (bytes <= options_.budget_bytes) return true;
    if (remove_unused(shard.path)) bytes -= shard.bytes;
  }
  return bytes <= options_.budget_bytes;
}

}  // namespace brim::data
