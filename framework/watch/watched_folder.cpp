#include "framework/watch/watched_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/experiment/profile/profile_file.h"

namespace brim::watch {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxReaders = 256;  // each holds a run's curves: up to some MiB
constexpr double kRefreshEveryS = 0.5;
constexpr double kRestPerWork = 20;  // looking for changes takes at most one twentieth of a core
constexpr int64_t kShownLogBytes = 16 << 10;

/// Whole lines.
std::string end_of(const fs::path& path) {
  const FileStream file = open_stream(path, Exit::kData);
  if (file == nullptr) return "";
  std::fseek(file.get(), 0, SEEK_END);
  const int64_t begin = std::max<int64_t>(0, std::ftell(file.get()) - kShownLogBytes);
  std::fseek(file.get(), begin, SEEK_SET);
  std::string text(kShownLogBytes, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (begin > 0) text.erase(0, text.find('\n') + 1);
  std::ranges::replace(text, '\r', '\n');  // of progress lines
  return text;
}

/// The end of the log, or why it can't be shown: it may be another user's.
std::string log_of(const fs::path& run) {
  try {
    return end_of(run / kRunFiles[4]);
  } catch (const Error& error) {
    return error.what();
  }
}

auto versions_in(const fs::path& folder) {
  std::array<experiment::FileVersion, kRunFiles.size()> versions;
  std::ranges::transform(kRunFiles, versions.begin(), [&](std::string_view file) {
    return experiment::version_of(folder / file);
  });
  return versions;
}

/// Of the run's newest line, for the order in which readers are let go of.
int64_t changed_ns(const WatchedRun& run) { return run.versions[0].changed_ns; }

}  // namespace

std::string describe_link_outside(const fs::path& link) {
  return printable(
      fmt::format("{}: a run is left out because its folder is a link that leads out of the folder "
                  "that is watched. Watch it by itself: trainer watch {}",
                  link.string(), shell_word(link.string())));
}

WatchedFolder::WatchedFolder(const fs::path& folder) {
  std::error_code error;
  folder_ = fs::canonical(folder, error);
  if (!error && fs::is_directory(folder_, error)) return;
  throw Error(Exit::kData, "{}: expected the folder of a run, a sweep or several of them, found {}",
              folder.string(), fs::exists(folder, error) ? "a file" : "nothing there");
}

bool WatchedFolder::is_run() const {
  std::error_code error;
  return fs::exists(folder_ / "run.json", error) || fs::exists(folder_ / "metrics.jsonl", error);
}

bool WatchedFolder::is_inside(const fs::path& path) const {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  const auto differs = std::mismatch(folder_.begin(), folder_.end(), real.begin(), real.end());
  return !error && differs.first == folder_.end();
}

void WatchedFolder::require_inside(const fs::path& path) const {
  if (is_inside(path)) return;
  throw Error(Exit::kData,
              "{}: a link that leads out of the folder that is watched is not followed",
              printable(path.lexically_relative(folder_).string()));
}

void WatchedFolder::require_inside(const fs::path& folder,
                                   std::span<const std::string_view> files) const {
  require_inside(folder);
  for (const std::string_view file : files) {
    std::error_code error;
    if (fs::is_symlink(folder / file, error)) require_inside(folder / file);
  }
}

void WatchedFolder::find_runs() {
  std::map<std::string, WatchedRun> found;
  sweeps_.clear();
  std::error_code error;
  if (fs::exists(folder_ / "sweep.db", error)) sweeps_.insert("");
  auto [runs, links] = history::find_run_folders(folder_);
  find_links_outside(links);
  for (auto& [folder, name] : runs) {
    const fs::path above = folder.parent_path().parent_path();  // of SWEEP/trials/0001
    if (above != folder_ && is_inside(above) && fs::exists(above / "sweep.db", error)) {
      sweeps_.insert(above.lexically_relative(folder_).string());
    }
    const auto known = runs_.find(name);
    found.emplace(name, known != runs_.end() ? std::move(known->second)
                                             : WatchedRun{.folder = folder, .name = name});
  }
  runs_ = std::move(found);
}

void WatchedFolder::find_links_outside(const std::vector<fs::path>& links) {
  links_outside_.clear();
  for (const fs::path& link : links) {
    if (is_inside(link)) continue;
    links_outside_.insert(link);
    if (logged_links_.insert(link).second) log::warning("{}", describe_link_outside(link));
  }
}

void WatchedFolder::read(WatchedRun& run, bool needs_reader) {
  try {
    require_inside(run.folder, kRunFiles);
    const auto versions = versions_in(run.folder);
    const bool is_same = versions == run.versions && run.changes > 0;
    if (is_same && (!needs_reader || run.reader != nullptr)) return;
    if (run.reader == nullptr) {
      run.reader = std::make_unique<experiment::RunReader>(run.folder);
    }
    run.reader->update();
    run.problem.clear();
    if (versions[3] != run.versions[3]) run.profile = experiment::find_profile(run.folder);
    run.log = log_of(run.folder);
    run.versions = versions;
    run.changes = ++changes_;
  } catch (const Error& error) {
    if (run.problem != error.what()) run.changes = ++changes_;
    run.problem = error.what();
  }
}

/// As of the last change; a run that was let go of has not changed since.
void WatchedFolder::sum_up(WatchedRun& run) {
  if (run.summed_up == run.changes || run.reader == nullptr) return;
  run.summed_up = run.changes;
  try {
    run.past = history::past_run_of(run.reader->data(), run.name);
  } catch (const Error& error) {
    run.problem = error.what();
  }
}

/// Of those that have not changed for longest.
void WatchedFolder::let_go_of_readers() {
  std::vector<WatchedRun*> read;
  for (auto& [name, run] : runs_) {
    if (run.reader != nullptr) read.push_back(&run);
  }
  if (read.size() <= kMaxReaders) return;
  std::ranges::sort(read, std::greater<>{}, [](const auto* run) { return changed_ns(*run); });
  for (size_t i = kMaxReaders; i < read.size(); ++i) read[i]->reader.reset();
}

void WatchedFolder::refresh() {
  const double begin_s = now_s();
  if (begin_s < due_s_) return;
  find_runs();
  for (auto& [name, run] : runs_) {
    read(run, /*needs_reader=*/false);
    sum_up(run);
    let_go_of_readers();
  }
  due_s_ = now_s() + std::max(kRefreshEveryS, kRestPerWork * (now_s() - begin_s));
}

WatchedRun* WatchedFolder::find(const std::string& name) {
  if (!runs_.contains(name)) refresh();
  const auto found = runs_.find(name);
  if (found == runs_.end()) return nullptr;
  read(found->second, /*needs_reader=*/true);
  return &found->second;
}

}  // namespace brim::watch
