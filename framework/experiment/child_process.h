// A run of this program as a child that is not waited for. It dies with this process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/descriptor.h"

namespace brim::experiment {

struct ChildEnd {
  int status = 0;                        // of exit, or 128 + the signal that ended it
  double cpu_s = 0.0;                    // with its own children
  int64_t resident_peak_bytes = 0;       // of the largest process among them
  std::vector<std::string> errors = {};  // its lines "error[word]: …", at most ten
};

struct ChildOptions {
  std::vector<std::string> arguments;
  std::filesystem::path log;  // what it writes is added there
  /// Variables that it gets besides this process's.
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// Ctrl-C on the terminal reaches this process alone, which then passes the stop on.
  bool has_own_group = false;
};

class ChildProcess {
 public:
  /// Throws Error(kResource) where it can't be started.
  explicit ChildProcess(const ChildOptions& options);
  /// One that still runs is killed.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Its end, once; nullopt while it runs.
  std::optional<ChildEnd> try_wait();
  /// Asks it to stop, once however often this is called.
  void stop();
  /// Whether stop() was called while it ran.
  bool is_told() const { return is_told_; }
  /// Readable when it has ended; -1 where the kernel has no such descriptors.
  int descriptor() const { return process_.get(); }

 private:
  std::filesystem::path log_;
  int64_t log_begin_;  // where this child's part of the log begins, in bytes
  pid_t pid_;
  Descriptor process_;
  bool is_told_ = false;
  bool has_ended_ = false;
};

}  // namespace brim::experiment
