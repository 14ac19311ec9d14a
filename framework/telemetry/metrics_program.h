// telemetry.exec: a program that gets each line of metrics.jsonl on its standard input, as trackers
// such as MLflow take them. Whatever becomes of it, the run neither stops nor waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace brim::telemetry {

class MetricsProgram {
 public:
  /// Starts `words`, a program (searched for in PATH) and its arguments, with this process's
  /// folder, stderr and environment, and BRIM_RUN_FOLDER. What it prints goes to stderr. A program
  /// that can't be started is a warning.
  MetricsProgram(const std::vector<std::string>& words, const std::filesystem::path& run);
  /// Ends its input once it has read what is left, and waits for its end: 30 s, or 5 s from a
  /// request to stop. One that still runs then gets SIGTERM, and a second later SIGKILL.
  ~MetricsProgram();
  MetricsProgram(const MetricsProgram&) = delete;
  MetricsProgram& operator=(const MetricsProgram&) = delete;

  /// A line with its line feed. Never blocks: what the program does not read yet is kept, up to 1
  /// MiB; lines beyond are dropped, and counted in a warning at the end.
  void take(std::string_view line);

 private:
  void start(const std::vector<std::string>& words, const std::filesystem::path& run);
  void send();
  bool has_ended();
  bool wait_for_end(double patience_s);

  const std::string name_;
  pid_t pid_ = -1;  // -1: it was not started
  int input_ = -1;  // the pipe's end to write to; -1: closed
  std::string unsent_;
  int64_t dropped_ = 0;        // lines
  std::optional<int> status_;  // as of waitpid(), once it has ended
};

}  // namespace brim::telemetry
