// A sweep's state on disk: FOLDER/sweep.db. Every change is one transaction, durable when the call
// returns, so that a sweep that is killed at any time continues from what it last wrote. Other
// processes may read it at the same time, and leave requests there.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "framework/base/files.h"
#include "framework/sweep/database.h"
#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {

/// What another terminal has asked of a sweep.
enum class Request { kRun, kPause, kCancel };

class Store {
 public:
  /// Makes the folder with its database and recipe.toml, and locks it. Throws Error(kRecipe) where the folder holds
  /// a sweep, or anything else.
  static std::unique_ptr<FileLock> create(const std::filesystem::path& folder, const Plan& plan,
                                          const std::string& recipe,
                                          const std::vector<Trial>& trials);
  /// recipe.toml in the sweep's folder: what the trials have in common, for more of them.
  std::filesystem::path recipe() const;
  /// The lock of the process that runs the sweep. Throws Error(kResource) where another holds it.
  static std::unique_ptr<FileLock> lock(const std::filesystem::path& folder);

  /// Throws Error(kData) for a folder that is not a sweep's, or is damaged.
  explicit Store(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// "trials/0007" in the sweep's folder.
  std::filesystem::path run_folder(const Trial& trial) const;
  const Plan& plan() const { return plan_; }

  /// By their ids.
  std::vector<Trial> trials();
  /// Those with ids above `id`: what was added since.
  std::vector<Trial> trials_after(int64_t id);
  /// State, failures, reason, seconds and results.
  void update(const Trial& trial);
  /// They get the next ids.
  void add(const std::vector<Trial>& trials);

  Request request();
  void set_request(Request request);

 private:
  std::filesystem::path folder_;
  Database database_;
  Plan plan_;
};

}  // namespace brim::sweep
