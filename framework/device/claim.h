// A mark on a GPU that ends with the process which holds it: runs that choose for themselves see it
// and choose another. One lock file a GPU, in /tmp/brim-gpus, or where the environment variable
// BRIM_CLAIM_FOLDER says.
#pragma once

#include <filesystem>
#include <string>

namespace brim::device {

class Claim {
 public:
  enum class Kind {
    kSole,    // of a run that chose the GPU because it is idle
    kShared,  // of a run that was told to take it
  };
  enum class Result { kHeld, kTakenByOther, kNoLocks };

  /// Does not block. kNoLocks, and nobody is kept away: the folder or the file can't be made, or is
  /// not a plain one; a folder must be sticky, or belong to this user or root.
  Claim(const std::string& gpu, Kind kind, const std::filesystem::path& folder = claim_folder());
  ~Claim();
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&&) = delete;

  Result result() const { return result_; }

  static std::filesystem::path claim_folder();

 private:
  int fd_ = -1;
  Result result_ = Result::kNoLocks;
};

}  // namespace brim::device
