// The workers' output on its way to our stdout and stderr and to log files. Nothing here waits and
// every buffer has a limit, so that no reader and no line, however long, holds up the watch.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace brim::launch {

/// Our stdout or stderr. Whole lines of different ranks are never mixed; a line that one rank left
/// unfinished is ended before another's begins.
class Sink {
 public:
  explicit Sink(int fd);

  /// Takes bytes of a rank; `prefix` goes before each of its lines.
  void put(int rank, std::string_view prefix, std::string_view bytes);
  /// Writes what can be written without waiting. A reader that is gone has the rest dropped.
  void write_some();

  int fd() const { return fd_; }
  bool has_waiting() const { return written_ < waiting_.size(); }
  /// So much is waiting that no more should be read from workers.
  bool is_full() const;

 private:
  int fd_;
  bool is_file_;  // never waits
  bool is_gone_ = false;
  std::string waiting_;
  size_t written_ = 0;
  bool at_line_start_ = true;
  int last_rank_ = -1;
};

/// A log file that takes exact bytes. A disk that is full is warned of once; the run continues.
class LogFile {
 public:
  LogFile() = default;
  /// Appends. Throws Error(kResource) where it can't be opened.
  explicit LogFile(std::filesystem::path path);
  ~LogFile();
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&& other) noexcept;

  void write(std::string_view bytes);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// Keeps the last line that isn't empty, and the last that starts with `error[`, cut to a readable
/// length and with control characters as spaces. Lines of a stack are passed over.
class LastLines {
 public:
  void take(std::string_view bytes);
  /// The line for a report: the error where there is one. An unfinished line counts.
  std::string best() const;

 private:
  void end_line();

  std::string current_;
  std::string last_;
  std::string error_;
};

/// One worker's stdout or stderr: reads its pipe, writes the log, passes lines on.
class OutputStream {
 public:
  /// Owns `fd`, which doesn't block. `sink` may be null: nothing is passed on.
  OutputStream(int fd, int rank, std::string prefix, Sink* sink, LogFile log);
  ~OutputStream();
  OutputStream(OutputStream&& other) noexcept;
  OutputStream& operator=(OutputStream&&) = delete;

  /// Reads what is there, at most 64 KiB; false when there was nothing. Closes itself at the end.
  bool read_some();
  /// Passes on a line that has stayed unfinished for 0.1 s, or any with `at_once`.
  void flush_unfinished(double now, bool at_once);

  int fd() const { return fd_; }  // -1 once closed
  bool has_unfinished() const { return !unfinished_.empty(); }
  bool may_read() const { return fd_ >= 0 && (sink_ == nullptr || !sink_->is_full()); }
  const LastLines& last_lines() const { return last_lines_; }
  const std::filesystem::path& log_path() const { return log_.path(); }

 private:
  void take(std::string_view bytes);
  void close();

  int fd_;
  int rank_;
  std::string prefix_;
  Sink* sink_;
  LogFile log_;
  LastLines last_lines_;
  std::string unfinished_;
  double unfinished_since_ = 0;
};

}  // namespace brim::launch
