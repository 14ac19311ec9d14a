#include "framework/device/gpus/gpu_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "framework/base/descriptor.h"

namespace brim::device {
namespace fs = std::filesystem;

namespace {

/// /tmp is everyone's: a link may lead anywhere, and who owns the folder may replace its files.
int open_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
  struct stat status {};
  if (fd < 0) return fd;
  if (::fstat(fd, &status) == 0 &&
      ((status.st_mode & S_ISVTX) != 0 || status.st_uid == ::geteuid() || status.st_uid == 0)) {
    return fd;
  }
  ::close(fd);
  return -1;
}

/// A FIFO of another user's must not block, nor a link lead elsewhere. Opened for reading only,
/// which is enough for a lock: another user's file in a sticky folder may not be opened for more,
/// or by O_CREAT (fs.protected_regular).
int open_lock(int folder, const std::string& name) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = ::openat(folder, name.c_str(), kFlags);
  if (fd < 0) {
    fd = ::openat(folder, name.c_str(), kFlags | O_CREAT, 0644);
    if (fd >= 0) ::fchmod(fd, 0644);  // for every user, whatever this one's umask
  }
  struct stat status {};
  if (fd < 0 || (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode))) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

fs::path GpuLock::lock_folder() {
  const char* folder = std::getenv("BRIM_GPU_LOCK_FOLDER");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp/brim-gpus";
}

int GpuLock::open_lock_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) {
    ::chmod(folder.c_str(), 01777);  // for every user, whatever this one's umask
  }
  return open_folder(folder);
}

GpuLock::GpuLock(const std::string& gpu, Kind kind, const fs::path& folder) {
  std::string name = gpu;
  std::ranges::replace(name, '/', '_');
  const Descriptor opened(open_lock_folder(folder));
  if (opened.get() < 0) return;
  fd_ = open_lock(opened.get(), name);
  if (fd_ < 0) return;
  if (::flock(fd_, (kind == Kind::kSole ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
    result_ = Result::kHeld;
  } else if (errno == EWOULDBLOCK) {
    result_ = Result::kTakenByOther;
  }
}

GpuLock::~GpuLock() {
  if (fd_ >= 0) ::close(fd_);
}

GpuLock::GpuLock(GpuLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), result_(other.result_) {}

}  // namespace brim::device
