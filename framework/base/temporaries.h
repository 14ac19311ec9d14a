// What processes that were killed left behind: temporary files and folders, told by their locks.
// Whoever writes one holds a lock on it (flock), which ends with the process. Its number would tell
// less: numbers are used again, and each machine and each container has its own.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "framework/base/files.h"

namespace brim {

/// A temporary is named as what it becomes, then this, then the number of the process.
inline constexpr std::string_view kTemporaryMark = ".tmp.";
/// The file in a temporary folder that its owner holds as a FileLock. A folder without it is not
/// ours.
inline constexpr const char* kFolderLock = "lock";

/// What a temporary of this name becomes: "a" for "a.tmp.17"; empty for other names.
std::string_view target_of_temporary(std::string_view name);

/// Removes a file, or a folder with all in it, that is this user's and that no process holds. False
/// where it stays: its owner lives, or the file system knows no locks and can't tell.
bool remove_if_stale(const std::filesystem::path& path);

/// Removes what killed processes left of writing `path`, which is a file or a folder. To be called
/// by who is about to write it: an AtomicFile is unlocked for a moment before it is renamed.
void remove_temporaries(const std::filesystem::path& path);

/// Removes the stale files in `folder` that `is_meant` by their names, but none that was changed
/// within the last minute: some mounts keep the locks of other machines to themselves.
void remove_stale_files(const std::filesystem::path& folder,
                        const std::function<bool(std::string_view)>& is_meant);

/// A new folder named `prefix` and six letters, in $TMPDIR or, where that is no folder, in /tmp.
/// Throws Error(kResource).
std::filesystem::path make_temporary_folder(std::string_view prefix);

/// A folder of make_temporary_folder(), gone with what is in it when this goes. Those with that
/// prefix that killed processes left are removed first, but none of the last minute, which its
/// owner may not have locked yet.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string_view prefix);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::optional<FileLock> lock_;  // by which others see that the folder is in use
};

}  // namespace brim
