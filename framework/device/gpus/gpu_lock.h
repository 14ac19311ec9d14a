// A mark on a GPU that ends with the process which holds it: runs that choose for themselves see it
// and choose another. One lock file a GPU, in /tmp/brim-gpus, or where the environment variable
// BRIM_GPU_LOCK_FOLDER says.
#pragma once

#include <filesystem>
#include <string>

namespace brim::device {

class GpuLock {
 public:
  enum class Kind {
    kSole,    // of a run that chose the GPU because it is idle
    kShared,  // of a run that was told to take it
  };
  enum class Result { kHeld, kTakenByOther, kNoLocks };

  /// Does not block. kNoLocks, and no one is kept away: the folder or the file can't be made, or is
  /// not a plain one; a folder must be sticky, or belong to this user or root.
  GpuLock(const std::string& gpu, Kind kind, const std::filesystem::path& folder = lock_folder());
  ~GpuLock();
  GpuLock(GpuLock&& other) noexcept;
  GpuLock& operator=(GpuLock&&) = delete;

  Result result() const { return result_; }

  static std::filesystem::path lock_folder();
  /// A descriptor of the folder, which is made where it is not there; -1 where it can't be had.
  static int open_lock_folder(const std::filesystem::path& folder);

 private:
  int fd_ = -1;
  Result result_ = Result::kNoLocks;
};

}  // namespace brim::device
