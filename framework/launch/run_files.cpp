#include "framework/launch/run_files.h"

#include <cstdlib>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/temporaries.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKept = "trainrun-";           // a folder with logs
constexpr std::string_view kTemporary = "trainrun-tmp-";  // one that goes with its launch

/// A folder of a new name under the system's folder for temporary files; empty where that fails.
fs::path temporary_folder(std::string_view prefix) {
  std::error_code problem;
  std::string name = fs::temp_directory_path(problem) / fmt::format("{}XXXXXX", prefix);
  return problem || ::mkdtemp(name.data()) == nullptr ? fs::path() : fs::path(name);
}

}  // namespace

RunFiles::RunFiles(const LaunchOptions& options, const std::string& run_id) {
  const bool wants_logs = !options.redirects.is_empty() || !options.tee.is_empty();
  if (!options.log_folder.empty()) {
    folder_ = fs::absolute(options.log_folder) / run_id;
    make_folder(folder_);
    return;
  }
  remove_stale_folders(kTemporary);
  const fs::path made = temporary_folder(wants_logs ? kKept : kTemporary);
  is_temporary_ = !wants_logs && !made.empty();
  if (is_temporary_) lock_.emplace(made / kFolderLock, "another launch has this folder");
  if (made.empty() && wants_logs) {
    std::error_code problem;
    const fs::path place = fs::temp_directory_path(problem);
    throw Error(Exit::kResource, "no folder for logs can be made in {}; give one with --log-dir",
                problem ? "TMPDIR, which is no folder" : place.string());
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
