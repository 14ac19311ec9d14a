#include "framework/train/run/run_folder.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/temporaries.h"
#include "framework/checkpoint/folder.h"
#include "framework/telemetry/run_record.h"

namespace brim::train {
namespace fs = std::filesystem;

bool RunFolder::is_branch() const {
  if (!checkpoint) return false;
  const fs::path run = checkpoint->parent_path().parent_path();
  return fs::weakly_canonical(run) != fs::weakly_canonical(path);
}

nlohmann::json read_record(const RunFolder& folder) {
  std::error_code error;
  const auto bytes = fs::file_size(folder.record(), error);
  if (error || bytes > telemetry::kLongestRunFile) return nlohmann::json::object();
  auto record = nlohmann::json::parse(
      read_file(folder.record(), Exit::kResource, telemetry::kLongestRunFile), nullptr, false);
  return record.is_object() ? record : nlohmann::json::object();
}

namespace {

constexpr std::string_view kAdvice = "; choose another by --output";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool holds_run(const fs::path& folder) { return is_there(folder / "recipe.toml"); }

bool is_checkpoint(const fs::path& folder) { return is_there(folder / "manifest.json"); }

/// runs/name, runs/name-2, …: the n-th candidate.
fs::path numbered(const std::string& name, int n, const fs::path& among) {
  return among / (n == 1 ? name : fmt::format("{}-{}", name, n));
}

/// The number of the first candidate that holds no run.
int first_free(const std::string& name, const fs::path& among) {
  int n = 1;
  while (is_there(numbered(name, n, among))) ++n;
  return n;
}

/// The --output must be a folder, or free to become one, and no folder of runs.
void check_output(const RunFolderOptions& options) {
  const fs::path& output = options.output;
  std::error_code ignored;
  if (!is_there(output) || holds_run(output)) return;
  if (!fs::is_directory(output, ignored)) {
    throw UsageError("--output {}: expected a folder, found a file; choose another name",
                     output.string());
  }
  for (const auto& entry : fs::directory_iterator(output, ignored)) {
    if (!is_there(entry.path() / "run.json") || !holds_run(entry.path())) continue;
    throw UsageError(
        "--output {}: expected the folder of one run, found a folder of runs, such as {}; did you "
        "mean --output {}?",
        output.string(), entry.path().filename().string(),
        numbered(options.run_name, first_free(options.run_name, output), output).string());
  }
}

/// Makes the first candidate that no other process has made.
fs::path claim(const std::string& name, const fs::path& among) {
  make_folder(among, kAdvice);
  for (int n = first_free(name, among);; ++n) {
    const fs::path path = numbered(name, n, among);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) {
      throw Error(Exit::kResource, "{}: cannot make the folder: {}{}", path.string(),
                  error.message(), kAdvice);
    }
  }
}

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  const fs::path checkpoints = run / "checkpoints";
  if (!is_there(checkpoints)) return std::nullopt;
  return checkpoint::latest_checkpoint(checkpoints);
}

std::shared_ptr<FileLock> take_lock(const fs::path& run) {
  return std::make_shared<FileLock>(
      run / "lock",
      fmt::format("{}: another process trains in this folder. Stop it, or choose another --output",
                  run.string()));
}

/// Locks the folder where it is there.
RunFolder locked(const fs::path& path, const RunFolderOptions& options) {
  RunFolder folder{path};
  if (!options.is_dry_run && is_there(path)) folder.lock = take_lock(path);
  return folder;
}

/// --output, or the newest runs/<run_name>….
fs::path newest_folder(const RunFolderOptions& options) {
  if (!options.output.empty()) return options.output;
  const int newest = std::max(1, first_free(options.run_name, options.runs) - 1);
  return numbered(options.run_name, newest, options.runs);
}

/// Its own newest checkpoint; before its first one, that of another folder which it began with.
RunFolder resume_in(const fs::path& path, const RunFolderOptions& options) {
  RunFolder folder = locked(path, options);
  folder.checkpoint = newest_checkpoint(folder.path);
  const auto record = read_record(folder);
  const auto from = record.find("resumed_from");
  if (folder.checkpoint || from == record.end() || !from->is_string()) return folder;
  folder.checkpoint = from->get<std::string>();
  if (is_checkpoint(*folder.checkpoint)) return folder;
  throw Error(Exit::kCheckpoint,
              "{}: has no checkpoint of its own yet, and {}, which it was resumed from, is gone; "
              "choose another --output",
              path.string(), folder.checkpoint->string());
}

/// Adds what the parts before said: the first one and the newest stay, so that a run that is
/// resumed for ever keeps a record that can be read.
void add_earlier(nlohmann::json before, nlohmann::json& record) {
  constexpr size_t kMaxEarlier = 10;
  nlohmann::json earlier = before.value("earlier", nlohmann::json::array());
  if (!earlier.is_array()) earlier = nlohmann::json::array();
  const auto counted = before.find("earlier_dropped");
  int64_t dropped =
      counted != before.end() && counted->is_number_integer() ? counted->get<int64_t>() : 0;
  before.erase("earlier");
  before.erase("earlier_dropped");
  before.erase("sample_predictions");  // the part that follows writes its own images over these
  if (!before.empty()) earlier.push_back(std::move(before));
  if (earlier.size() > kMaxEarlier) {
    const auto count = static_cast<int64_t>(earlier.size() - kMaxEarlier);
    earlier.erase(earlier.begin() + 1, earlier.begin() + 1 + count);
    dropped += count;
  }
  record["earlier"] = std::move(earlier);
  if (dropped > 0) record["earlier_dropped"] = dropped;
}

/// Whether the last part of the run in that folder was started by this launch.
bool is_of_launch(const RunFolder& folder, const std::string& launch) {
  return read_record(folder).value("launch", nlohmann::json()) == launch;
}

/// The folder that this launch made, though runs of the same name may have come since.
std::optional<fs::path> folder_of_launch(const RunFolderOptions& options) {
  if (!options.output.empty()) {
    return is_of_launch({options.output}, options.launch) ? std::optional(options.output)
                                                          : std::nullopt;
  }
  for (int n = first_free(options.run_name, options.runs) - 1; n > 0; --n) {
    const fs::path path = numbered(options.run_name, n, options.runs);
    if (is_of_launch({path}, options.launch)) return path;
  }
  return std::nullopt;
}

RunFolder resume_from(const RunFolderOptions& options) {
  const fs::path from = options.resume;
  if (!is_there(from)) {
    throw Error(Exit::kCheckpoint,
                "{}: no such folder; --resume takes \"auto\", a run's folder or a checkpoint's",
                from.string());
  }
  const fs::path canonical = fs::canonical(from);
  const bool names_checkpoint = is_checkpoint(canonical);
  const fs::path run = names_checkpoint ? canonical.parent_path().parent_path() : canonical;
  if (!options.output.empty() && holds_run(options.output) &&
      fs::canonical(options.output) != run) {
    throw Error(Exit::kRecipe,
                "--output {}: holds another run already; choose a new folder to resume from {}",
                options.output.string(), from.string());
  }
  RunFolder folder = locked(options.output.empty() ? run : fs::path(options.output), options);
  folder.checkpoint = names_checkpoint ? canonical : newest_checkpoint(run);
  if (folder.checkpoint) return folder;
  throw Error(Exit::kCheckpoint,
              "{}: expected a run's or checkpoint's folder, found no complete checkpoint",
              from.string());
}

}  // namespace

RunFolder choose_run_folder(const RunFolderOptions& options) {
  check_output(options);
  const fs::path place = fs::absolute(options.output.empty() ? options.runs : options.output);
  if (!is_utf8(place.native())) {
    throw Error(Exit::kRecipe,
                "{}: expected a path in UTF-8, since recipes and run.json can name no other; "
                "choose another --output",
                printable(place.native()));
  }
  if (options.is_restarted) {
    if (const auto folder = folder_of_launch(options)) return resume_in(*folder, options);
  }
  if (options.resume == "auto") return resume_in(newest_folder(options), options);
  if (!options.resume.empty()) return resume_from(options);
  if (options.output.empty()) {
    const int free = first_free(options.run_name, options.runs);
    return {numbered(options.run_name, free, options.runs), {}, options.run_name};
  }
  if (holds_run(options.output)) {
    take_lock(options.output);  // where it trains just now, that is what to know
    throw Error(Exit::kRecipe,
                "--output {}: holds a run already; pass --resume auto to resume it, or choose "
                "another folder",
                options.output.string());
  }
  return locked(options.output, options);
}

SavedRun find_saved(const fs::path& path) {
  if (!is_there(path)) {
    throw Error(Exit::kCheckpoint, "{}: no such folder; expected a run's or a checkpoint's",
                path.string());
  }
  const fs::path folder = fs::canonical(path);
  for (const auto& [name, find] : {std::pair{"latest", &checkpoint::latest_checkpoint},
                                   std::pair{"best", &checkpoint::best_checkpoint}}) {
    if (folder.filename() != name || !fs::is_regular_file(folder)) continue;
    if (const auto named = find(folder.parent_path())) {
      return {*named, {folder.parent_path().parent_path()}};
    }
  }
  if (is_checkpoint(folder)) return {folder, {folder.parent_path().parent_path()}};
  const RunFolder run{folder};
  std::optional<fs::path> checkpoint = checkpoint::best_checkpoint(run.checkpoints());
  if (!checkpoint) checkpoint = newest_checkpoint(folder);
  if (checkpoint) return {*checkpoint, run};
  if (holds_run(folder)) {
    throw Error(
        Exit::kCheckpoint,
        "{}: this run has no complete checkpoint yet; it saves one after its first epoch or "
        "as checkpoint.every_steps says",
        path.string());
  }
  throw Error(Exit::kCheckpoint,
              "{}: expected a run's or checkpoint's folder, found no complete checkpoint",
              path.string());
}

namespace {

struct RecordedLoss {
  int64_t step;
  double loss;      // infinite where it was not finite
  double too_high;  // by the losses so far
};

std::vector<RecordedLoss> recorded_losses(const fs::path& metrics) {
  std::vector<RecordedLoss> losses;
  std::ifstream file(metrics);
  double lowest = std::numeric_limits<double>::infinity();
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("loss") || !line.contains("step")) continue;
    if (!line["step"].is_number_integer()) continue;
    const double loss = line["loss"].is_number() ? line["loss"].get<double>()
                                                 : std::numeric_limits<double>::infinity();
    lowest = std::min(lowest, loss);
    const double first = losses.empty() ? loss : losses.front().loss;
    losses.push_back({line["step"].get<int64_t>(), loss, lowest + (first - lowest) / 2});
  }
  return losses;
}

/// A step's loss is computed with the weights before it: those that the checkpoint holds are judged
/// by the next one.
bool had_risen(const checkpoint::Listed& saved, const std::vector<RecordedLoss>& losses) {
  if (losses.empty()) return false;
  auto judged = std::ranges::upper_bound(losses, saved.step, {}, &RecordedLoss::step);
  if (judged == losses.end()) --judged;
  return !std::isfinite(judged->loss) || judged->loss > judged->too_high;
}

}  // namespace

std::string describe_last_good(const RunFolder& folder) {
  const auto losses = recorded_losses(folder.metrics());
  const auto saved = checkpoint::list_checkpoints(folder.checkpoints());
  if (saved.empty()) return "no checkpoint was saved";
  for (const checkpoint::Listed& candidate : saved) {
    if (had_risen(candidate, losses)) continue;
    return fmt::format("the newest checkpoint from before the loss rose is {} (--resume takes it)",
                       candidate.path.string());
  }
  return "every checkpoint is from after the loss rose";
}

namespace {

/// "optimizer.learning_rate" → "0.1" of a resolved recipe's text.
std::map<std::string, std::string> lines_by_key(const std::string& recipe) {
  std::map<std::string, std::string> values;
  std::string section;
  std::istringstream lines(recipe);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (equals != std::string::npos) {
      values[section + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return values;
}

/// Who resumes with another recipe than the run's should know it.
void report_changes(const fs::path& saved, const std::string& resolved_recipe) {
  constexpr int64_t kLargestRecipe = 1 << 20;
  std::error_code ignored;
  if (!fs::is_regular_file(saved, ignored)) return;
  const auto before = lines_by_key(read_file(saved, Exit::kRecipe, kLargestRecipe));
  for (const auto& [key, value] : lines_by_key(resolved_recipe)) {
    const auto found = before.find(key);
    if (found == before.end() || found->second == value) continue;
    log::info("resuming with {} = {}; the run had {}", key, value, found->second);
  }
}

}  // namespace

RunFolder create_run_folder(RunFolder folder, const std::string& resolved_recipe,
                            nlohmann::json record) {
  if (!folder.numbered.empty()) {
    folder.path = claim(folder.numbered, folder.path.parent_path());
  }
  if (folder.lock == nullptr) {
    make_folder(folder.path, kAdvice);
    folder.lock = take_lock(folder.path);
    if (holds_run(folder.path)) {
      throw Error(
          Exit::kRecipe,
          "--output {}: another run has begun here meanwhile; pass --resume auto to continue "
          "with it, or choose another folder",
          folder.path.string());
    }
  }
  for (const fs::path& file : {folder.recipe(), folder.record(), folder.metrics()}) {
    remove_temporaries(file);
  }
  make_folder(folder.checkpoints());
  if (folder.is_branch()) record["resumed_from"] = fs::absolute(*folder.checkpoint).string();
  add_earlier(read_record(folder), record);
  if (folder.checkpoint) report_changes(folder.recipe(), resolved_recipe);
  write_file(folder.recipe(), resolved_recipe);
  write_file(folder.record(),
             record.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  return folder;
}

}  // namespace brim::train
