// metrics.jsonl: a run's metrics, one JSON object a line, for scripts and for later reports.
// What the keys mean is decided by those who append; "step" alone is known here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "framework/telemetry/append_file.h"

namespace brim::telemetry {

/// Extends the file, or creates it; its errors and threads are AppendFile's. On resume
/// cut_back_metrics() comes first: a torn last line would swallow the first new one.
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path) : file_(path) {}

  /// Numbers that are not finite appear as null: JSON has no word for them. Returns the line as it
  /// is written, with its line feed.
  std::string append(const nlohmann::json& line);
  void flush() { file_.flush(); }
  void close() { file_.close(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

/// On resume: drops every line whose "step" is greater than `step`, a torn last line, and lines
/// that are not JSON objects (a warning counts them). Lines without "step" stay. The file is
/// replaced whole or left as it is; a file that isn't there is fine. Holds one line in memory.
/// `look`, where given, is called with every line that is an object, before any is dropped. Returns
/// the last step that was dropped, or `step`.
int64_t cut_back_metrics(const std::filesystem::path& path, int64_t step,
                         const std::function<void(const nlohmann::json& line)>& look = nullptr);

}  // namespace brim::telemetry
