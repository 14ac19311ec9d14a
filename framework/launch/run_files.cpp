#include "framework/launch/run_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKept = "trainrun-";           // a folder with logs
constexpr std::string_view kTemporary = "trainrun-tmp-";  // one that goes with its launch
constexpr const char* kLockName = "lock";

/// A folder of a new name under the system's folder for temporary files; empty where that fails.
fs::path temporary_folder(std::string_view prefix) {
  std::error_code problem;
  std::string name = fs::temp_directory_path(problem) / fmt::format("{}XXXXXX", prefix);
  return problem || ::mkdtemp(name.data()) == nullptr ? fs::path() : fs::path(name);
}

/// Of this user, and old enough to be locked by the launch that made it, were it alive.
bool may_be_stale(const fs::path& folder) {
  constexpr time_t kYoungest_s = 60;
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == ::getuid() && info.st_mtime + kYoungest_s < std::time(nullptr);
}

/// Removes the temporary folders of launches that were killed.
void remove_stale_folders() {
  std::error_code problem;
  fs::directory_iterator item(fs::temp_directory_path(problem), problem);
  for (; !problem && item != fs::directory_iterator(); item.increment(problem)) {
    const fs::path& folder = item->path();
    if (!folder.filename().native().starts_with(kTemporary) || !may_be_stale(folder)) continue;
    try {
      const FileLock lock(folder / kLockName, "its launch is alive");
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    } catch (const Error&) {  // it stays
    }
  }
}

}  // namespace

RunFiles::RunFiles(const LaunchOptions& options, const std::string& run_id) {
  const bool wants_logs = !options.redirects.is_empty() || !options.tee.is_empty();
  if (!options.log_folder.empty()) {
    folder_ = fs::absolute(options.log_folder) / run_id;
    make_folder(folder_);
    return;
  }
  remove_stale_folders();
  const fs::path made = temporary_folder(wants_logs ? kKept : kTemporary);
  is_temporary_ = !wants_logs && !made.empty();
  if (is_temporary_) lock_.emplace(made / kLockName, "another launch has this folder");
  if (made.empty() && wants_logs) {
    throw Error(Exit::kResource, "no folder for logs can be made in {}; give one with --log-dir",
                fs::temp_directory_path().string());
  }
  folder_ = made.empty() ? made : made / run_id;
  if (wants_logs) log::info("logs of the ranks are in {}", folder_.string());
}

RunFiles::~RunFiles() {
  std::error_code ignored;
  if (is_temporary_) fs::remove_all(folder_.parent_path(), ignored);
}

fs::path RunFiles::rank_folder(int attempt, int local_rank) const {
  if (folder_.empty()) return {};
  const fs::path folder = folder_ / fmt::format("attempt_{}", attempt) / std::to_string(local_rank);
  make_folder(folder);
  return folder;
}

}  // namespace brim::launch
