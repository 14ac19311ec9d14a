#include "framework/data/sources/byte_source.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace brim::data {

void ByteSource::throw_truncated(int64_t offset, size_t wanted, int64_t found_bytes) const {
  throw Error(Exit::kData, "{}: truncated: expected {} bytes at byte {}, the file ends at {}",
              name_, wanted, offset, found_bytes);
}

void MemoryBytes::read(int64_t offset, std::span<uint8_t> out) const {
  const auto wanted = static_cast<int64_t>(out.size());
  if (offset < 0 || offset > size() || wanted > size() - offset) {
    throw_truncated(offset, out.size(), size());
  }
  std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
}

FileBytes::FileBytes(const std::filesystem::path& path, std::string name)
    : ByteSource(name.empty() ? path.string() : std::move(name)) {
  // O_NONBLOCK: opening a pipe without a writer must not hang.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) {
    throw Error(Exit::kData, "{}: cannot open: {}", this->name(), errno_text(errno));
  }
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    throw Error(Exit::kData, "{}: expected a regular file, found {}", this->name(),
                file_kind(info.st_mode));
  }
  size_ = info.st_size;
  modified_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

FileBytes::~FileBytes() { ::close(fd_); }

void FileBytes::hold() {
  // Where a file system has no locks, the file may be removed; it stays readable all the same.
  ::flock(fd_, LOCK_SH | LOCK_NB);
}

void FileBytes::read(int64_t offset, std::span<uint8_t> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const int64_t at = offset + static_cast<int64_t>(done);
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Exit::kData, "{}: cannot read: {}", name(), errno_text(errno));
    if (got == 0) {  // beyond what it was when it was opened, too
      struct stat now {};
      throw_truncated(offset, out.size(), ::fstat(fd_, &now) == 0 ? now.st_size : at);
    }
    done += static_cast<size_t>(got);
  }
}

}  // namespace brim::data
