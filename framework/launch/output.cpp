#include "framework/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::launch {
namespace {

constexpr size_t kSinkLimit = 1 << 20;
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kLineLimit = 64 << 10;  // a longer one is passed on in pieces
constexpr size_t kReportedBytes = 500;
constexpr double kUnfinishedLimit_s = 0.1;

// A pipe or terminal that poll() calls writable takes this much without waiting (PIPE_BUF).
constexpr size_t kSureBytes = 4096;

bool is_regular_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

/// A line of a stack as LibTorch prints it, which says less than the message before it.
bool is_of_stack(std::string_view line) {
  if (line.starts_with("error[")) line.remove_prefix(std::min(line.find(": ") + 2, line.size()));
  return line.starts_with("frame #") || line.starts_with("Exception raised from ");
}

bool is_writable(int fd) {
  pollfd state{fd, POLLOUT, 0};
  return ::poll(&state, 1, 0) == 1;
}

}  // namespace

Sink::Sink(int fd) : fd_(fd), is_file_(is_regular_file(fd)) {}

bool Sink::is_full() const { return waiting_.size() - written_ > kSinkLimit; }

void Sink::put(int rank, std::string_view prefix, std::string_view bytes) {
  if (is_gone_ || bytes.empty()) return;
  if (!at_line_start_ && rank != last_rank_) {
    waiting_ += '\n';
    at_line_start_ = true;
  }
  last_rank_ = rank;
  if (prefix.empty()) {
    waiting_ += bytes;
    at_line_start_ = bytes.back() == '\n';
    return;
  }
  while (!bytes.empty()) {
    if (at_line_start_) waiting_ += prefix;
    const size_t end = bytes.find('\n');
    at_line_start_ = end != std::string_view::npos;
    const size_t size = at_line_start_ ? end + 1 : bytes.size();
    waiting_ += bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
}

void Sink::write_some() {
  while (has_waiting() && (is_file_ || is_writable(fd_))) {
    size_t size = waiting_.size() - written_;
    if (!is_file_) size = std::min(size, kSureBytes);
    const ssize_t count = ::write(fd_, waiting_.data() + written_, size);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (count < 0) {
      if (errno != EPIPE) {
        log::warning("{}: cannot write: {}; the rest of the ranks' output there is lost",
                     fd_ == STDOUT_FILENO ? "stdout" : "stderr", errno_text(errno));
      }
      is_gone_ = true;
      written_ = waiting_.size();
      break;
    }
    written_ += static_cast<size_t>(count);
  }
  if (written_ * 2 >= waiting_.size()) {
    waiting_.erase(0, written_);
    written_ = 0;
  }
}

LogFile::LogFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw Error(Exit::kResource, "{}: cannot open: {}", path_.string(), errno_text(errno));
}

LogFile::LogFile(LogFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

LogFile& LogFile::operator=(LogFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

LogFile::~LogFile() {
  if (fd_ >= 0) ::close(fd_);
}

void LogFile::write(std::string_view bytes) {
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      log::warning("{}: cannot write: {}; the rest of this log is lost", path_.string(),
                   errno_text(errno));
      ::close(std::exchange(fd_, -1));
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void LastLines::take(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const size_t room = kReportedBytes - std::min(kReportedBytes, current_.size());
    current_ += bytes.substr(0, std::min(end, room));
    if (end == bytes.size()) return;
    end_line();
    bytes.remove_prefix(end + 1);
  }
}

void LastLines::end_line() {
  for (char& c : current_) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  current_.erase(0, std::min(current_.find_first_not_of(' '), current_.size()));
  current_.erase(current_.find_last_not_of(' ') + 1);
  if (!current_.empty() && !is_of_stack(current_)) {
    if (current_.starts_with("error[")) error_ = current_;
    last_ = current_;
  }
  current_.clear();
}

std::string LastLines::best() const {
  LastLines ended = *this;
  ended.end_line();
  return ended.error_.empty() ? ended.last_ : ended.error_;
}

OutputStream::OutputStream(int fd, int rank, std::string prefix, Sink* sink, LogFile log)
    : fd_(fd), rank_(rank), prefix_(std::move(prefix)), sink_(sink), log_(std::move(log)) {}

OutputStream::OutputStream(OutputStream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      rank_(other.rank_),
      prefix_(std::move(other.prefix_)),
      sink_(other.sink_),
      log_(std::move(other.log_)),
      last_lines_(std::move(other.last_lines_)),
      unfinished_(std::move(other.unfinished_)),
      unfinished_since_(other.unfinished_since_) {}

OutputStream::~OutputStream() { close(); }

void OutputStream::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool OutputStream::read_some() {
  if (fd_ < 0) return false;
  static std::array<char, kReadBytes> buffer;
  const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
  if (count < 0) return false;  // nothing there, or a signal
  if (count == 0) {
    close();
    return false;
  }
  take({buffer.data(), static_cast<size_t>(count)});
  return true;
}

void OutputStream::take(std::string_view bytes) {
  log_.write(bytes);
  last_lines_.take(bytes);
  if (sink_ == nullptr) return;
  const size_t whole = bytes.rfind('\n') + 1;  // 0 where there is none
  if (whole > 0) {
    unfinished_ += bytes.substr(0, whole);
    sink_->put(rank_, prefix_, unfinished_);
    unfinished_.clear();
    bytes.remove_prefix(whole);
  }
  if (unfinished_.empty()) unfinished_since_ = now_s();
  unfinished_ += bytes;
  if (unfinished_.size() > kLineLimit) flush_unfinished(0, true);
}

void OutputStream::flush_unfinished(double now, bool at_once) {
  if (unfinished_.empty() || (!at_once && now - unfinished_since_ < kUnfinishedLimit_s)) return;
  sink_->put(rank_, prefix_, unfinished_);
  unfinished_.clear();
}

}  // namespace brim::launch
