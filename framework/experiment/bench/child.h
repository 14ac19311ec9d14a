// One run of this program as a fresh child process.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/experiment/child_process.h"

namespace brim::experiment {

/// A folder of its own under $TMPDIR or /tmp, gone with what is in it when this goes. Those that
/// killed processes left are removed first. Throws Error(kResource).
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;  // by which others see that the folder is in use
};

/// Runs this program with `arguments`; what it writes goes to the file `log`. Calls `meanwhile`
/// twice a second. A stop asked of this process is passed on, once. It dies with this process.
/// Throws Error(kResource) where it can't be started.
ChildEnd run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                   const std::function<void()>& meanwhile);

/// The error that a child ended with, for this program to end with too: "`where`: " before each of
/// its error lines. `end.status` is not 0.
Error error_of(const ChildEnd& end, const std::string& where);

}  // namespace brim::experiment
