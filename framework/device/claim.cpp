#include "framework/device/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace brim::device {
namespace fs = std::filesystem;

namespace {

/// Opened for reading only, which is enough for a lock: another user's file in a sticky folder may
/// not be opened for more, or by O_CREAT (fs.protected_regular).
int open_lock(const fs::path& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
  const int fd = ::open(path.c_str(), kFlags);
  return fd >= 0 ? fd : ::open(path.c_str(), kFlags | O_CREAT, 0644);
}

}  // namespace

fs::path Claim::claim_folder() {
  const char* folder = std::getenv("BRIM_CLAIM_FOLDER");
  return folder != nullptr && *folder != '\0' ? folder : "/tmp/brim-gpus";
}

Claim::Claim(const std::string& gpu, Kind kind, const fs::path& folder) {
  std::string name = gpu;
  std::ranges::replace(name, '/', '_');
  if (::mkdir(folder.c_str(), 0777) == 0) {
    ::chmod(folder.c_str(), 01777);  // for every user, whatever this one's umask
  }
  fd_ = open_lock(folder / name);
  if (fd_ < 0) return;
  if (::flock(fd_, (kind == Kind::kSole ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
    result_ = Result::kHeld;
  } else if (errno == EWOULDBLOCK) {
    result_ = Result::kTakenByOther;
  }
}

Claim::~Claim() {
  if (fd_ >= 0) ::close(fd_);
}

Claim::Claim(Claim&& other) noexcept : fd_(std::exchange(other.fd_, -1)), result_(other.result_) {}

}  // namespace brim::device
