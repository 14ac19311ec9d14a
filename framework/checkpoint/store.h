// Saves and loads the state of a run. The step waits for a copy of the tensors only; one thread
// writes it out behind. What the state means is train/'s; how it lies on disk is folder.h's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "framework/checkpoint/folder.h"
#include "framework/checkpoint/tensors.h"

namespace brim::checkpoint {

/// All that a run needs to resume from `step`.
struct Snapshot {
  int64_t step = 0;                          // 0 or more
  std::map<std::string, TensorMap> tensors;  // "model" → model.safetensors, "optimizer", "ema"
  /// Whose values are on the disk already; see Store::stream().
  std::map<std::string, std::shared_ptr<SafetensorsWriter>> streamed;
  /// What tensors that were loaded look into.
  std::vector<std::shared_ptr<const WeightFiles>> files;
  nlohmann::json state;  // state.json; every number finite
};

/// Reads a checkpoint's folder after verifying all of it. The tensors look into the files, which
/// they keep open, and take memory where they are read; they are to be read only: clone() what is
/// to change. Throws Error(kCheckpoint) that names each file that is missing, truncated or changed.
Snapshot load_checkpoint(const std::filesystem::path& checkpoint);

/// The writer of a run's checkpoints: one process, one Store. Readers use load_checkpoint(),
/// latest_checkpoint() and best_checkpoint(). save() and wait() belong to one thread.
class Store {
 public:
  /// See FolderWriter for `keep`, the lock and the errors.
  Store(const std::filesystem::path& folder, int64_t keep);
  /// Waits for the writer; a failure no one asked about becomes a warning.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Waits until the snapshot before is on disk (so there is never more than one copy in memory),
  /// copies the tensors, returns; a thread writes them. The tensors may change from then on. Those
  /// on the CPU that nothing but `snapshot` refers to are taken as they are. Throws what the write
  /// before this one failed with: Error(kResource) for a full disk. Error(kBug) where `snapshot`
  /// has a negative step or names that no file may have.
  void save(Snapshot snapshot, bool is_best);

  /// A file of the next checkpoint whose values come piece by piece, without a copy in memory.
  /// Waits as save() does; put it into that Snapshot's `streamed` under the same stem. Throws as
  /// SafetensorsWriter does.
  std::shared_ptr<SafetensorsWriter> stream(const std::string& stem, const TensorMap& layout);

  /// Returns once everything saved is on disk; throws what its writing failed with.
  void wait();
  /// Whether wait() would return at once.
  bool is_idle();

  std::optional<std::filesystem::path> latest() const { return latest_checkpoint(folder_); }
  std::optional<std::filesystem::path> best() const { return best_checkpoint(folder_); }
  Snapshot load(const std::filesystem::path& checkpoint) const {
    return load_checkpoint(checkpoint);
  }

 private:
  struct Work {
    Snapshot snapshot;
    std::string state;
    bool is_best;
  };
  void run();
  void write(const Work& work);

  std::filesystem::path folder_;
  FolderWriter writer_;  // used by the thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Work> work_;    // handed over or being written; guarded, like those below
  std::exception_ptr failure_;  // of a write, until save() or wait() throws it
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace brim::checkpoint
