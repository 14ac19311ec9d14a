#include "framework/data/shards/body_limit.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "framework/base/units.h"

namespace brim::data {
namespace {

constexpr int64_t kUnknownSpace = int64_t{128} << 30;
constexpr int64_t kMaxReserve = int64_t{1} << 30;
constexpr int64_t kReserveDivisor = 20;
// So many downloads at once don't write more than the reserve before they ask again.
constexpr int64_t kDownloadsAtOnce = 64;
constexpr const char* kMakeRoom = "Make room, or name a folder on another disk as data.shard_cache";

}  // namespace

DiskSpace disk_space(int fd) {
  struct statvfs status {};
  if (::fstatvfs(fd, &status) != 0 || status.f_blocks == 0) return {kUnknownSpace, kUnknownSpace};
  const auto block = static_cast<int64_t>(status.f_frsize);
  return {.free_bytes = block * static_cast<int64_t>(status.f_bavail),
          .total_bytes = block * static_cast<int64_t>(status.f_blocks)};
}

int64_t reserve_bytes(const DiskSpace& disk) {
  return std::min(kMaxReserve, disk.total_bytes / kReserveDivisor);
}

std::optional<BodyLimit::Refusal> BodyLimit::begin(int64_t declared_bytes) {
  declared_bytes_ = declared_bytes;
  if (max_bytes_ > 0 && declared_bytes > max_bytes_) {
    return Refusal{Exit::kData,
                   fmt::format("expected at most {}, found {}. Check what the server has there, or "
                               "raise data.shard_cache_gib if that is the cap",
                               format_bytes(max_bytes_), format_bytes(declared_bytes))};
  }
  const DiskSpace disk = ask_(fd_);
  const int64_t reserve = reserve_bytes(disk);
  undeclared_cap_ = disk.free_bytes / 2;
  asked_at_bytes_ = 0;
  ask_every_bytes_ = std::max<int64_t>(1, reserve / kDownloadsAtOnce);
  const int64_t known_bytes = std::max<int64_t>(0, declared_bytes);
  if (known_bytes <= disk.free_bytes - reserve) return {};
  return Refusal{Exit::kResource,
                 fmt::format("expected room for its {} and {} that stay free, found {} of the disk "
                             "free. {}",
                             format_bytes(known_bytes), format_bytes(reserve),
                             format_bytes(disk.free_bytes), kMakeRoom)};
}

std::optional<BodyLimit::Refusal> BodyLimit::grow(int64_t bytes) {
  if (declared_bytes_ >= 0 && bytes > declared_bytes_) {
    return Refusal{Exit::kData,
                   fmt::format("expected the {} bytes that the server declared, found more. Check "
                               "the server",
                               format_count(declared_bytes_))};
  }
  if (max_bytes_ > 0 && bytes > max_bytes_) {
    return Refusal{Exit::kData,
                   fmt::format("expected at most {}, found more, of undeclared length. Check what "
                               "the server sends there, or raise data.shard_cache_gib if that is "
                               "the cap",
                               format_bytes(max_bytes_))};
  }
  if (max_bytes_ == 0 && declared_bytes_ < 0 && bytes > undeclared_cap_) {
    return Refusal{Exit::kResource,
                   fmt::format("expected at most {} of undeclared length, half of the free disk, "
                               "found more. Check what the server sends there, or give "
                               "data.shard_cache_gib as a cap",
                               format_bytes(undeclared_cap_))};
  }
  if (bytes - asked_at_bytes_ < ask_every_bytes_) return {};
  asked_at_bytes_ = bytes;
  const DiskSpace disk = ask_(fd_);
  if (disk.free_bytes >= reserve_bytes(disk)) return {};
  return Refusal{
      Exit::kResource,
      fmt::format("expected {} of the disk to stay free, found {} after {} of the download. {}",
                  format_bytes(reserve_bytes(disk)), format_bytes(disk.free_bytes),
                  format_bytes(bytes), kMakeRoom)};
}

}  // namespace brim::data
