#include "framework/telemetry/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr double kFlushEvery_s = 1.0;
constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw Error(Exit::kResource, "{}: cannot open for writing: {}", path_.string(),
                errno_text(errno));
  }
}

AppendFile::~AppendFile() {
  try {
    close();
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
}

void AppendFile::append(std::string_view record) {
  buffer_ += record;
  if (buffer_.size() >= kBufferBytes || now_s() - flushed_s_ >= kFlushEvery_s) flush();
}

/// What is written to a file that has lost its name reaches no one.
void AppendFile::require_named() {
  struct stat ours {};
  struct stat named {};
  if (fd_ < 0 || ::fstat(fd_, &ours) != 0) return;
  if (::stat(path_.c_str(), &named) == 0 && named.st_ino == ours.st_ino) return;
  ::close(std::exchange(fd_, -1));
  throw Error(
      Exit::kResource,
      "{}: the file was deleted or replaced while the run wrote to it. Leave a run's folder "
      "as it is until the run has ended",
      path_.string());
}

void AppendFile::flush() {
  require_named();
  // The buffer is given up before writing: after a failure nothing is written twice.
  const std::string buffer = std::exchange(buffer_, {});
  std::string_view rest = buffer;
  while (!rest.empty() && fd_ >= 0) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(Exit::kResource, "{}: cannot write: {}", path_.string(), errno_text(errno));
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  flushed_s_ = now_s();
}

void AppendFile::close() {
  if (fd_ < 0) return;
  flush();
  if (::close(std::exchange(fd_, -1)) != 0) {
    throw Error(Exit::kResource, "{}: cannot write: {}", path_.string(), errno_text(errno));
  }
}

}  // namespace brim::telemetry
