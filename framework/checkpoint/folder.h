// A run's folder of checkpoints as it lies on disk; what is in a checkpoint's files is store.h's.
//
//   step-00001000/       a checkpoint: its files, and manifest.json written last
//   step-00001000.tmp/   being written or removed: never read, removed by the next writer
//   step-00001000.old/   while a checkpoint of the same step replaces it
//   spool-….safetensors  a file of the next checkpoint, written ahead of it; removed likewise
//   latest, best         small files holding the name of a checkpoint
//   lock                 empty; held by the process that writes here
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/files.h"

namespace brim::checkpoint {

/// A folder that holds a manifest which can be read; its other files are not looked at.
struct Listed {
  std::filesystem::path path;
  int64_t step;
  int64_t sequence;
  bool is_best;  // it was, when it was written
};

/// What is in a folder, the last written first, without those whose manifest is damaged.
std::vector<Listed> list_checkpoints(const std::filesystem::path& folder);

/// The checkpoint that `latest` names, all its files verified. If it is damaged, the newest whole
/// one, with a warning. None if nothing was ever saved; Error(kCheckpoint) if nothing of what was
/// saved is whole, so that no run starts over by mistake.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

/// The checkpoint that `best` names, unverified. If that file is damaged or lost, the newest that
/// was the best when it was written, with a warning. None if there is no best yet;
/// Error(kCheckpoint) if `best` is damaged and no other is known, or names one that is gone.
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& folder);

/// Where a file of the next checkpoint is written before its folder is there.
std::filesystem::path spool_path(const std::filesystem::path& folder, const std::string& file);

/// The one writer of a folder. Survives being killed at any moment: the folder then holds what it
/// held before, or the new checkpoint whole. Not thread-safe.
class FolderWriter {
 public:
  /// Makes the folder, takes its lock and cleans up after a writer that was killed. The last
  /// `keep` checkpoints stay, and the best one; 0 keeps all, and so does a `best` that can't be
  /// read.
  /// Throws Error(kResource) if another process is writing here, Error(kBug) for less than 0.
  FolderWriter(std::filesystem::path folder, int64_t keep);

  /// Calls `write_files` with an empty folder to fill; it returns the names of the files it wrote.
  /// They become the checkpoint of `step`, in place of an earlier one of that step, and `latest`;
  /// then older checkpoints go. If anything fails, what was there before stays.
  void write(
      int64_t step, bool is_best,
      const std::function<std::vector<std::string>(const std::filesystem::path&)>& write_files);

 private:
  void clean_up() const;
  void publish(const std::filesystem::path& written, const std::filesystem::path& final) const;
  void remove_older() const;

  std::filesystem::path folder_;
  int64_t keep_;
  FileLock lock_;
  int64_t next_sequence_ = 1;
};

}  // namespace brim::checkpoint
