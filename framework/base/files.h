// Files that are whole or not there: written to a temporary name, synced, renamed, folder synced.
// Every failure is an Error of kind resource (disk, permission) that names the path.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/descriptor.h"
#include "framework/base/error.h"

namespace brim {

/// Writes a file that appears under `path` only by commit(); without it the temporary is removed.
/// The temporary is locked, so that others can tell it from one that a killed process left
/// (temporaries.h). Needs require_replaceable().
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// From this byte of the file on, wherever write() stands.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  /// fsync, rename over `path`, fsync of the folder.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

/// An empty file that one process holds, or some share, while the object lives. The file itself
/// stays.
class FileLock {
 public:
  enum class Kind { kExclusive, kShared };

  /// Throws Error(kResource, taken) where another process holds it. File systems without locks
  /// refuse no one.
  FileLock(const std::filesystem::path& path, const std::string& taken);
  /// Null where another process holds it, or, for kExclusive, shares it.
  static std::unique_ptr<FileLock> try_lock(const std::filesystem::path& path,
                                            Kind kind = Kind::kExclusive);

 private:
  explicit FileLock(const std::filesystem::path& path);
  bool take(Kind kind);

  Descriptor file_;
};

/// Throws Error(kResource) unless nothing is there, a regular file or a link to one.
void require_replaceable(const std::filesystem::path& path);

/// AtomicFile in one call.
void write_file(const std::filesystem::path& path, std::string_view content);

/// The whole content. Throws Error(status) where the file can't be read or is over `limit_bytes`.
std::string read_file(const std::filesystem::path& path, Exit status_if_unreadable,
                      int64_t limit_bytes);
/// The same into `buffer`, whose memory is used again.
void read_file(const std::filesystem::path& path, Exit status_if_unreadable, int64_t limit_bytes,
               std::vector<uint8_t>& buffer);

using FileStream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// A file to read from its start; null where there is none. Throws Error(status) for folders,
/// devices and pipes, which could be waited for without end.
FileStream open_stream(const std::filesystem::path& path, Exit status_if_unreadable);

/// "a folder", "a pipe", "a socket" or "a device", for a message about what is no regular file.
std::string_view file_kind(mode_t mode);

/// brim/`name` in $XDG_CACHE_HOME, else in ~/.cache; empty where neither is known. Not made.
std::filesystem::path cache_folder(std::string_view name);

/// Makes a folder and its parents. The error ends with the advice.
void make_folder(const std::filesystem::path& path, std::string_view advice = "");

/// Makes a rename or removal inside `folder` durable.
void sync_folder(const std::filesystem::path& folder);

/// 32 hex digits of XXH3-128 of a file's bytes or of memory: finds damage, not malice.
std::string digest_file(const std::filesystem::path& path);
std::string digest(std::span<const std::byte> bytes);

/// A read-only memory map of a whole file; empty files map to an empty span.
class MappedFile {
 public:
  MappedFile(const std::filesystem::path& path, Exit status_if_unreadable);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace brim
