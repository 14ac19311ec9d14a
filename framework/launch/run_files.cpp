#include "framework/launch/run_files.h"

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"

namespace brim::launch {
namespace fs = std::filesystem;

RunFiles::RunFiles(const LaunchOptions& options, const std::string& run_id) {
  const bool wants_logs = !options.redirects.is_empty() || !options.tee.is_empty();
  if (!options.log_folder.empty()) {
    folder_ = fs::absolute(options.log_folder) / run_id;
    if (options.nodes > 1) folder_ /= fmt::format("node_{}", options.node_rank);
    make_folder(folder_);
  } else if (wants_logs) {
    try {
      folder_ = make_temporary_folder("trainrun-") / run_id;
    } catch (const Error& error) {
      throw Error(Exit::kResource, "{}; give a folder for logs with --log-dir", error.what());
    }
    log::info("logs of the ranks are in {}", folder_.string());
  } else {
    try {
      folder_ = temporary_.emplace("trainrun-tmp-").path() / run_id;
    } catch (const Error& error) {
      log::warning("no rank's error can be kept: {}", error.what());
    }
  }
}

fs::path RunFiles::rank_folder(int attempt, int local_rank) const {
  if (folder_.empty()) return {};
  const fs::path folder = folder_ / fmt::format("attempt_{}", attempt) / std::to_string(local_rank);
  make_folder(folder);
  return folder;
}

}  // namespace brim::launch
