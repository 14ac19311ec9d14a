// The runs and sweeps of a folder, followed while they change: of each only what is new is read.
// Nothing outside the folder is read: neither a name nor a link leads out of it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/experiment/run_data.h"
#include "framework/history/past_run.h"
#include "framework/telemetry/step_profile.h"

namespace brim::watch {

/// Files of a run that are shown, and in whose changes a page changes.
inline constexpr std::array<std::string_view, 5> kRunFiles = {
    "metrics.jsonl", "run.json", "recipe.toml", "profile.json", "trainer.log"};

struct WatchedRun {
  std::filesystem::path folder;
  std::string name;          // below the folder that is watched; "" for that itself
  std::string problem = {};  // why it can't be read; "" where it can
  int64_t changes = 0;       // rises where something new was read; 0: nothing yet
  std::array<experiment::FileVersion, kRunFiles.size()> versions = {};
  std::unique_ptr<experiment::RunReader> reader = {};  // null: not read, or let go since
  history::PastRun past = {};                          // as of `summed_up` changes
  int64_t summed_up = 0;
  std::optional<telemetry::StepProfile> profile = {};
  std::string log = {};  // the end of it
};

/// Why a link of WatchedFolder::links_outside() is left out and what to do, for people.
std::string describe_link_outside(const std::filesystem::path& link);

class WatchedFolder {
 public:
  /// Throws Error(kData) where there is no such folder.
  explicit WatchedFolder(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Whether the folder is a run's own.
  bool is_run() const;

  /// Looks for runs that are new or gone, and reads what is new of all; less often where that takes
  /// long. Throws as find_run_folders().
  void refresh();
  const std::map<std::string, WatchedRun>& runs() const { return runs_; }
  /// Names of folders of sweeps that have begun; "" is the folder itself.
  const std::set<std::string>& sweeps() const { return sweeps_; }
  /// Links to runs outside the folder, which are left out. Each is logged once.
  const std::set<std::filesystem::path>& links_outside() const { return links_outside_; }

  /// A run with its reader, and with what is new; null where there is none of that name.
  WatchedRun* find(const std::string& name);

  /// Throws Error(kData) where the folder of a run or a sweep, or one of these files in it, is a
  /// link that leads out of the folder that is watched.
  void require_inside(const std::filesystem::path& folder,
                      std::span<const std::string_view> files) const;

 private:
  bool is_inside(const std::filesystem::path& path) const;
  void require_inside(const std::filesystem::path& path) const;
  void find_runs();
  void find_links_outside(const std::vector<std::filesystem::path>& links);
  void read(WatchedRun& run, bool needs_reader);
  void sum_up(WatchedRun& run);
  void let_go_of_readers();

  std::filesystem::path folder_;  // without links
  std::map<std::string, WatchedRun> runs_;
  std::set<std::string> sweeps_;
  std::set<std::filesystem::path> links_outside_;
  std::set<std::filesystem::path> logged_links_;
  int64_t changes_ = 0;  // of all runs, those that are gone included
  double due_s_ = 0;     // when refresh() is worth its time again, by now_s()
};

}  // namespace brim::watch
