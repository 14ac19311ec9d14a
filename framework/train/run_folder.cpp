#include "framework/train/run_folder.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/store.h"
#include "framework/telemetry/run_record.h"

namespace brim::train {
namespace fs = std::filesystem;
namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool holds_run(const fs::path& folder) { return is_there(folder / "recipe.toml"); }

bool is_checkpoint(const fs::path& folder) { return is_there(folder / "manifest.json"); }

/// runs/name, runs/name-2, …: the n-th candidate.
fs::path numbered(const std::string& name, int n) {
  return fs::path("runs") / (n == 1 ? name : fmt::format("{}-{}", name, n));
}

/// The number of the first candidate that holds no run.
int first_free(const std::string& name) {
  int n = 1;
  while (is_there(numbered(name, n))) ++n;
  return n;
}

/// Makes the first candidate that no other process has made.
fs::path claim(const std::string& name) {
  make_folder("runs");
  for (int n = first_free(name);; ++n) {
    const fs::path path = numbered(name, n);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) throw Error(Exit::kResource, "{}: {}", path.string(), error.message());
  }
}

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  const fs::path checkpoints = run / "checkpoints";
  if (!is_there(checkpoints)) return std::nullopt;
  return checkpoint::latest_checkpoint(checkpoints);
}

RunFolder resume_auto(const RunFolderOptions& options) {
  fs::path path = options.output;
  if (path.empty())
    path = numbered(options.run_name, std::max(1, first_free(options.run_name) - 1));
  return {path, newest_checkpoint(path)};
}

/// Whether the last part of the run in that folder was started by this launch.
bool is_of_launch(const RunFolder& folder, const std::string& launch) {
  if (!is_there(folder.record())) return false;
  const auto record = nlohmann::json::parse(
      read_file(folder.record(), Exit::kResource, telemetry::kLongestRunFile), nullptr, false);
  return record.is_object() && record.value("launch", nlohmann::json()) == launch;
}

RunFolder resume_from(const RunFolderOptions& options) {
  const fs::path from = options.resume;
  if (!is_there(from)) {
    throw Error(Exit::kCheckpoint,
                "{}: no such folder; --resume takes \"auto\", a run's folder or a checkpoint's",
                from.string());
  }
  const fs::path canonical = fs::canonical(from);
  std::optional<fs::path> checkpoint = canonical;
  fs::path run = canonical.parent_path().parent_path();
  if (!is_checkpoint(canonical)) {
    run = canonical;
    checkpoint = newest_checkpoint(run);
  }
  if (!checkpoint) {
    throw Error(Exit::kCheckpoint,
                "{}: expected a run's or checkpoint's folder, found no complete checkpoint",
                from.string());
  }
  if (options.output.empty()) return {run, checkpoint};
  if (holds_run(options.output) && fs::canonical(options.output) != run) {
    throw Error(Exit::kRecipe,
                "--output {}: holds another run already; choose a new folder to go on from {}",
                options.output.string(), from.string());
  }
  return {options.output, checkpoint};
}

}  // namespace

RunFolder choose_run_folder(const RunFolderOptions& options) {
  if (options.is_restarted) {
    RunFolder found = resume_auto(options);
    if (is_of_launch(found, options.launch)) return found;
  }
  if (options.resume == "auto") return resume_auto(options);
  if (!options.resume.empty()) return resume_from(options);
  if (options.output.empty()) {
    return {numbered(options.run_name, first_free(options.run_name)), {}, options.run_name};
  }
  if (holds_run(options.output)) {
    throw Error(Exit::kRecipe,
                "--output {}: holds a run already; pass --resume auto to go on with it, or choose "
                "another folder",
                options.output.string());
  }
  return {options.output};
}

SavedRun find_saved(const fs::path& path) {
  if (!is_there(path)) {
    throw Error(Exit::kCheckpoint, "{}: no such folder; expected a run's or a checkpoint's",
                path.string());
  }
  const fs::path folder = fs::canonical(path);
  if (is_checkpoint(folder)) return {folder, folder.parent_path().parent_path() / "recipe.toml"};
  const RunFolder run{folder};
  std::optional<fs::path> checkpoint = checkpoint::best_checkpoint(run.checkpoints());
  if (!checkpoint) checkpoint = newest_checkpoint(folder);
  if (checkpoint) return {*checkpoint, run.recipe()};
  throw Error(Exit::kCheckpoint,
              "{}: expected a run's or checkpoint's folder, found no complete checkpoint",
              path.string());
}

RunFolder create_run_folder(RunFolder folder, const std::string& resolved_recipe,
                            nlohmann::json record) {
  if (!folder.numbered.empty()) folder.path = claim(folder.numbered);
  make_folder(folder.checkpoints());
  nlohmann::json earlier = nlohmann::json::array();
  if (is_there(folder.record())) {
    nlohmann::json before = nlohmann::json::parse(
        read_file(folder.record(), Exit::kResource, telemetry::kLongestRunFile), nullptr, false);
    if (before.is_object()) {
      const nlohmann::json list = before.value("earlier", nlohmann::json::array());
      if (list.is_array()) earlier = list;
      before.erase("earlier");
      earlier.push_back(std::move(before));
    }
  }
  record["earlier"] = std::move(earlier);
  write_file(folder.recipe(), resolved_recipe);
  write_file(folder.record(), record.dump(2) + "\n");
  return folder;
}

}  // namespace brim::train
