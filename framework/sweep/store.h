// A sweep's state on disk: FOLDER/sweep.db. Every change is one transaction, durable when the call
// returns, so that a sweep that is killed at any time continues from what it last wrote. Several
// processes may run one sweep, on one machine or on several that share a folder: each holds the
// lock of a trial that it runs, by which the others see that it lives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/base/files.h"
#include "framework/experiment/run_data.h"
#include "framework/sweep/database.h"
#include "framework/sweep/plan.h"
#include "framework/sweep/trial.h"

namespace brim::sweep {

/// What another terminal has asked of a sweep.
enum class Request { kRun, kPause, kCancel };

/// A trial that this process runs.
struct Claim {
  size_t trial;                    // its place
  std::unique_ptr<FileLock> lock;  // kept until the store has the trial's end
};

/// The place of the trial to run next; nullopt for none.
using Choice = std::function<std::optional<size_t>(std::span<const Trial>)>;

/// What is known of the run in a folder; null: nothing yet.
using FindRun = std::function<const experiment::RunData*(const std::filesystem::path&)>;

class Store {
 public:
  /// Makes the folder with its database and recipe.toml. Throws Error(kRecipe) where the folder
  /// holds a sweep, or anything else.
  static void create(const std::filesystem::path& folder, const Plan& plan,
                     const std::string& recipe, const std::vector<Trial>& trials);
  /// While this lives no process runs the sweep; null where one does.
  static std::unique_ptr<FileLock> lock_if_idle(const std::filesystem::path& folder);
  /// Whether no process runs the sweep, as far as that can be seen.
  static bool is_idle(const std::filesystem::path& folder);

  /// Throws Error(kData) for a folder that is not a sweep's, or is damaged.
  explicit Store(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// recipe.toml in the sweep's folder: what the trials have in common, for more of them.
  std::filesystem::path recipe() const;
  /// "trials/0007" in the sweep's folder.
  std::filesystem::path run_folder(const Trial& trial) const;
  const Plan& plan() const { return plan_; }

  /// This process runs the sweep while the lock lives, beside others that do. The first of them
  /// takes back what was asked of the ones before, and trials are to be continued that were given
  /// up after kMaxFailures: what they lacked may be there now. Throws Error(kResource) where
  /// another changes the sweep for 10 s.
  std::unique_ptr<FileLock> join();

  /// By their ids, from 1 on: trials are added, none goes.
  std::vector<Trial> trials();
  /// Sets Trial::so_far of those that run, or have stopped, failed or been cancelled. Of runs that
  /// `find` does not give only what is new since the last call is read.
  void look_at_runs(std::vector<Trial>& trials, const FindRun& find = {});
  /// By the evaluations of the trial's run, the latest or the best; nullopt without any. Throws
  /// Error(kData) where there is no run.
  std::optional<RungResult> result_of_run(const Trial& trial, bool latest) const;
  /// Reads them again where another process has written since the last call. Throws Error(kData)
  /// where trials are gone.
  void refresh(std::vector<Trial>& trials);
  /// The same; those of processes that are gone are to be continued.
  void take_back(std::vector<Trial>& trials);
  /// The same, and takes one for this process: it is kRunning then. nullopt where there is none to
  /// take now.
  std::optional<Claim> claim(std::vector<Trial>& trials, const Choice& choose);
  /// State, failures, reason, seconds and results of a trial that this process runs.
  void update(const Trial& trial);
  /// All that no process runs and that may still run.
  void cancel(std::vector<Trial>& trials);
  /// They get the next ids. False where the sweep no longer has `known` trials: then another
  /// process has added some, and nothing is added.
  bool add(const std::vector<Trial>& trials, size_t known);

  Request request();
  void set_request(Request request);

 private:
  void continue_failed();
  void stop_abandoned(std::vector<Trial>& trials);
  std::unique_ptr<FileLock> lock_of(const Trial& trial) const;
  void write(const Trial& trial);
  int64_t version();
  std::optional<RungResult> result_of(const experiment::RunData& run, bool latest) const;
  std::optional<RungResult> read_so_far(const Trial& trial);

  std::filesystem::path folder_;
  Database database_;
  Plan plan_;
  std::optional<int64_t> version_;  // of what others have written, when last read
  /// Of a trial that has not ended well.
  struct Seen {
    std::optional<State> state;                     // as it was read
    std::unique_ptr<experiment::RunReader> reader;  // while it runs
    std::optional<RungResult> so_far;
  };
  std::map<int64_t, Seen> seen_;
};

}  // namespace brim::sweep
