#include "framework/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <vector>

#include "framework/base/temporaries.h"

namespace brim {
namespace fs = std::filesystem;
namespace {

constexpr size_t kDigestPiece = size_t{1} << 18;

[[noreturn]] void throw_file_error(Exit status, std::string_view action, const fs::path& path,
                                   int code) {
  throw Error(status, "{}: cannot {}: {}", path.string(), action, errno_text(code));
}

/// Opens a regular file for reading; folders, devices and pipes are refused.
int open_regular(const fs::path& path, Exit status, struct stat& info) {
  // O_NONBLOCK: opening a pipe without a writer must not hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_file_error(status, "open", path, errno);
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(status, "{}: expected a regular file, found {}", path.string(),
                file_kind(info.st_mode));
  }
  return fd;
}

/// Makes a file and locks it for as long as it is open. Below 0: see errno; EEXIST where another
/// process has a file of that name.
int create_locked(const fs::path& path) {
  constexpr int kTries = 100;
  for (int i = 0;; ++i) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) {
      const int code = errno;
      if (code == EEXIST && remove_if_stale(path)) continue;
      errno = code;
      return fd;
    }
    while (::flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat info {};
    if (i == kTries || ::fstat(fd, &info) != 0 || info.st_nlink > 0) return fd;
    ::close(fd);  // removed as stale before it was locked
  }
}

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

void require_replaceable(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISREG(info.st_mode)) return;
  } else if (::lstat(path.c_str(), &info) != 0) {
    return;  // nothing, or what keeps a file from being made
  }
  throw Error(Exit::kResource,
              "{}: expected a regular file or nothing there, found {}; choose another name",
              path.string(), S_ISLNK(info.st_mode) ? "a link to nothing" : file_kind(info.st_mode));
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  constexpr int kTries = 100;
  require_replaceable(path_);
  for (int i = 0; fd_ < 0; ++i) {
    temporary_ = path_;
    temporary_ += fmt::format("{}{}", kTemporaryMark, ::getpid());
    if (i > 0) temporary_ += fmt::format(".{}", i);  // another machine has that number, too
    fd_ = create_locked(temporary_);
    if (fd_ < 0 && (errno != EEXIST || i == kTries)) {
      throw_file_error(Exit::kResource, "create", path_, errno);
    }
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error(Exit::kResource, "write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error(Exit::kResource, "write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) throw_file_error(Exit::kResource, "sync", path_, errno);
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary_.c_str());
    throw_file_error(Exit::kResource, "write", path_, code);
  }
  sync_folder(path_.parent_path());
}

FileLock::FileLock(const fs::path& path)
    : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (file_.get() < 0) throw_file_error(Exit::kResource, "create", path, errno);
}

FileLock::FileLock(const fs::path& path, const std::string& taken) : FileLock(path) {
  if (!take(Kind::kExclusive)) throw Error(Exit::kResource, taken);
}

std::unique_ptr<FileLock> FileLock::try_lock(const fs::path& path, Kind kind) {
  std::unique_ptr<FileLock> lock(new FileLock(path));
  return lock->take(kind) ? std::move(lock) : nullptr;
}

bool FileLock::take(Kind kind) {
  const int operation = kind == Kind::kShared ? LOCK_SH : LOCK_EX;
  return ::flock(file_.get(), operation | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

namespace {

template <class Buffer>
void read_into(const fs::path& path, Exit status, int64_t limit_bytes, Buffer& content) {
  struct stat info {};
  Descriptor file(open_regular(path, status, info));
  if (info.st_size > limit_bytes) {
    throw Error(status, "{}: expected at most {} bytes, found {}", path.string(), limit_bytes,
                info.st_size);
  }
  content.resize(static_cast<size_t>(info.st_size));
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error(status, "read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
}

}  // namespace

std::string read_file(const fs::path& path, Exit status, int64_t limit_bytes) {
  std::string content;
  read_into(path, status, limit_bytes, content);
  return content;
}

void read_file(const fs::path& path, Exit status, int64_t limit_bytes,
               std::vector<uint8_t>& buffer) {
  read_into(path, status, limit_bytes, buffer);
}

FileStream open_stream(const fs::path& path, Exit status) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 && errno == ENOENT) return {nullptr, &std::fclose};
  const int fd = open_regular(path, status, info);
  FileStream stream(::fdopen(fd, "r"), &std::fclose);
  if (stream == nullptr) ::close(fd);
  if (stream == nullptr) throw_file_error(status, "open", path, errno);
  return stream;
}

std::string_view file_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

std::filesystem::path cache_folder(std::string_view name) {
  const auto variable = [](const char* key) {
    const char* value = std::getenv(key);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto base = variable("XDG_CACHE_HOME"); base.is_absolute()) return base / "brim" / name;
  if (const auto home = variable("HOME"); home.is_absolute())
    return home / ".cache" / "brim" / name;
  return {};
}

void make_folder(const fs::path& path, std::string_view advice) {
  if (path.empty()) return;  // the current one
  std::error_code code;
  fs::create_directories(path, code);
  if (!code) return;
  throw Error(Exit::kResource, "{}: cannot make the folder: {}{}", path.string(),
              errno_text(code.value()), advice);
}

void sync_folder(const fs::path& folder) {
  const fs::path target = folder.empty() ? fs::path(".") : folder;
  Descriptor file(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0 || ::fsync(file.get()) != 0) {
    throw_file_error(Exit::kResource, "sync", target, errno);
  }
}

std::string digest(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

// In pieces: mapped, the file would be a part of what the process holds.
std::string digest_file(const fs::path& path) {
  struct stat info {};
  const Descriptor file(open_regular(path, Exit::kCheckpoint, info));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> piece(kDigestPiece);
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error(Exit::kCheckpoint, "read", path, errno);
    if (got == 0) return hex(XXH3_128bits_digest(state.get()));
    XXH3_128bits_update(state.get(), piece.data(), static_cast<size_t>(got));
  }
}

MappedFile::MappedFile(const fs::path& path, Exit status) {
  struct stat info {};
  Descriptor file(open_regular(path, status, info));
  if (info.st_size == 0) return;
  const auto size = static_cast<size_t>(info.st_size);
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (start == MAP_FAILED) throw_file_error(status, "map", path, errno);
  bytes_ = {static_cast<const std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace brim
