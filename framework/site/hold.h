// Which devices the runs of a machine hold, for everyone to see: a file for each process that holds
// some, beside the locks of GPUs, locked while the process lives. The file's owner is the user,
// whatever is written in it.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/device/gpus/gpu_lock.h"
#include "framework/site/device.h"
#include "framework/site/limits.h"

namespace brim::site {

/// Set for a process whose devices a process of the same user holds, such as a sweep for its
/// trials.
inline constexpr const char* kHeldByParent = "BRIM_DEVICES_HELD";

struct Held {
  uid_t user = 0;
  std::string what;  // the run's name, or the command
  int64_t process = 0;
  std::timespec since{};
  Devices devices;
  std::string file;  // its name in the folder

  /// "GPU 0 by digits (process 4242) since 14:02".
  std::string shown() const;
};

/// Of all users, the oldest first. Files that a killed process of this user left are removed.
std::vector<Held> read_holds(const std::filesystem::path& folder = device::GpuLock::lock_folder());

/// Shows that this process holds devices, until it ends or this does.
class Hold {
 public:
  /// No file is made, and no one sees it, where the folder can't be written to.
  Hold(const Devices& devices, const std::string& what,
       std::filesystem::path folder = device::GpuLock::lock_folder());
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  bool is_seen() const { return !file_.empty(); }
  /// Its file's name.
  const std::string& file() const { return file_; }

 private:
  std::filesystem::path folder_;
  std::string file_;
  int fd_ = -1;
};

/// Holds devices where the rules let this user hold them beside what they hold already. Of two that
/// come at the same time neither overlooks the other. Throws Error(kResource), naming the rule.
std::unique_ptr<Hold> take_hold(const Limits& limits, const Devices& devices,
                                const std::string& what);

}  // namespace brim::site
