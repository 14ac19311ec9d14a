// A log-like file written behind a small buffer, for the files that machines read while a run is
// still going. What a line or record looks like is its owner's concern.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace brim::telemetry {

/// Appends whole records; what append() took reaches the file within a second of the next append(),
/// by flush(), by close() or by the destructor. Not thread-safe. A disk that fails, and a file that
/// was deleted or replaced, is an Error(kResource) from the call that met it (the destructor, which
/// can't throw, warns).
class AppendFile {
 public:
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view record);
  void flush();
  /// Flushes and closes; later calls do nothing.
  void close();

  const std::filesystem::path& path() const { return path_; }

 private:
  void require_named();

  std::filesystem::path path_;
  int fd_ = -1;
  std::string buffer_;
  double flushed_s_ = 0.0;  // when the buffer was last empty, by now_s()
};

}  // namespace brim::telemetry
