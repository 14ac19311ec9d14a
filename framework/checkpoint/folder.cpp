#include "framework/checkpoint/folder.h"

#include <algorithm>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/base/temporaries.h"
#include "framework/checkpoint/manifest.h"

namespace brim::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kReplaced = ".old";
constexpr std::string_view kSpool = "spool-";
constexpr std::string_view kLatest = "latest";
constexpr std::string_view kBest = "best";

std::string folder_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

/// step-00001000, with or without an ending.
bool is_ours(std::string_view name, std::string_view ending) {
  if (!name.starts_with(kPrefix) || !name.ends_with(ending)) return false;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(ending.size(), name.size()));
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

fs::path with_ending(fs::path path, std::string_view ending) {
  path += ending;
  return path;
}

/// The folders of ours with this ending, by name.
std::vector<fs::path> find_folders(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator item(folder, code), end; !code && item != end; item.increment(code)) {
    std::error_code ignored;
    if (is_ours(item->path().filename().native(), ending) && item->is_directory(ignored)) {
      found.push_back(item->path());
    }
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    throw Error(Exit::kCheckpoint, "{}: cannot list the folder: {}", folder.string(),
                code.message());
  }
  std::ranges::sort(found);
  return found;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) {
    throw Error(Exit::kResource, "{}: cannot rename to {}: {}", from.string(), to.string(),
                code.message());
  }
}

void remove_folder(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) {
    throw Error(Exit::kResource, "{}: cannot remove: {}", path.string(), code.message());
  }
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Takes a whole checkpoint (step-N or step-N.old) away such that no reader ever sees half of it.
void retire(const fs::path& checkpoint) {
  const fs::path temporary = with_ending(checkpoint.parent_path() / checkpoint.stem(), kTemporary);
  remove_folder(temporary);
  rename_folder(checkpoint, temporary);
  remove_folder(temporary);
}

/// The same of one that is not needed any more: where it can't be taken away, it stays.
void remove_whole(const fs::path& checkpoint) {
  try {
    retire(checkpoint);
  } catch (const Error& error) {
    log::warning("{}; an old checkpoint stays in the way until it is removed", error.what());
  }
}

/// The checkpoint that `latest` or `best` names; none if there is no such file.
std::optional<fs::path> read_pointer(const fs::path& folder, std::string_view pointer) {
  const fs::path path = folder / pointer;
  if (!is_there(path)) return std::nullopt;
  std::string name = read_file(path, Exit::kCheckpoint, 100);
  if (name.ends_with('\n')) name.pop_back();
  if (!is_ours(name, "")) {
    throw Error(Exit::kCheckpoint, "{}: expected the name of a checkpoint, found {}", path.string(),
                in_quotes(name));
  }
  return folder / name;
}

/// The checkpoint that `best` names, or did before it was lost.
std::optional<fs::path> find_best(const fs::path& folder) {
  std::optional<Error> damage;
  try {
    if (auto named = read_pointer(folder, kBest)) return named;
  } catch (const Error& error) {
    damage = error;
  }
  const auto listed = list_checkpoints(folder);
  const auto found = std::ranges::find(listed, true, &Listed::is_best);
  if (found != listed.end()) {
    log::warning("{}; taking {}, which was the best when it was saved",
                 damage ? damage->what() : (folder / kBest).string() + ": there is no such file",
                 found->path.filename().string());
    return found->path;
  }
  if (damage) throw Error(*damage);
  return std::nullopt;
}

/// Whatever happens, nothing stays under this path; a published folder has left it by then.
struct RemovedAtEnd {
  fs::path path;
  ~RemovedAtEnd() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

/// What a killed writer has spooled.
void remove_spooled(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator item(folder, code), end; !code && item != end; item.increment(code)) {
    std::error_code ignored;
    if (item->path().filename().native().starts_with(kSpool)) fs::remove(item->path(), ignored);
  }
}

void verify(const fs::path& checkpoint) { verify_files(checkpoint, read_manifest(checkpoint)); }

/// The folder, made where it isn't there.
const fs::path& made(const fs::path& folder) {
  make_folder(folder);
  return folder;
}

}  // namespace

fs::path spool_path(const fs::path& folder, const std::string& file) {
  return folder / (std::string(kSpool) + file);
}

std::vector<Listed> list_checkpoints(const fs::path& folder) {
  std::vector<fs::path> paths = find_folders(folder, "");
  for (fs::path& replaced : find_folders(folder, kReplaced)) paths.push_back(std::move(replaced));
  std::vector<Listed> found;
  for (const fs::path& path : paths) {
    try {
      const Manifest manifest = read_manifest(path);
      found.push_back({path, manifest.step, manifest.sequence, manifest.is_best});
    } catch (const Error&) {
      continue;
    }
  }
  std::ranges::stable_sort(found, std::greater{}, &Listed::sequence);
  return found;
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  std::optional<fs::path> named;
  try {
    named = read_pointer(folder, kLatest);
    if (named) {
      verify(*named);
      return named;
    }
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
  for (const Listed& candidate : list_checkpoints(folder)) {
    if (candidate.path == named) continue;
    try {
      verify(candidate.path);
      log::warning("{}: '{}' names no whole checkpoint; taking {}, the newest that is whole",
                   folder.string(), kLatest, candidate.path.filename().string());
      return candidate.path;
    } catch (const Error& error) {
      log::warning("{}", error.what());
    }
  }
  if (find_folders(folder, "").empty() && find_folders(folder, kReplaced).empty() &&
      !is_there(folder / kLatest)) {
    return std::nullopt;
  }
  throw Error(Exit::kCheckpoint,
              "{}: expected a whole checkpoint, found only damaged ones; restore one from a copy, "
              "or remove this folder to start over",
              folder.string());
}

std::optional<fs::path> best_checkpoint(const fs::path& folder) {
  const auto best = find_best(folder);
  if (best) read_manifest(*best);
  return best;
}

FolderWriter::FolderWriter(fs::path folder, int64_t keep)
    : folder_(std::move(folder)),
      keep_(keep),
      lock_(made(folder_) / "lock",
            fmt::format("{}: another process is saving checkpoints here; stop it, or choose "
                        "another --output",
                        folder_.string())) {
  if (keep < 0) {
    throw Error(Exit::kBug, "keep is {}: expected 1 or more checkpoints, or 0 to keep all", keep);
  }
  clean_up();
  const auto listed = list_checkpoints(folder_);
  if (!listed.empty()) next_sequence_ += listed.front().sequence;
  // Those that can't be read may have been written after all others.
  next_sequence_ += std::ssize(find_folders(folder_, "")) - std::ssize(listed);
  try {
    if (const auto best = find_best(folder_)) {
      write_file(folder_ / kBest, best->filename().string() + "\n");
    }
  } catch (const Error& error) {
    if (error.status() != Exit::kCheckpoint) throw;  // remove_older() says so
  }
}

void FolderWriter::clean_up() const {
  for (const fs::path& path : find_folders(folder_, kTemporary)) remove_folder(path);
  remove_spooled(folder_);
  for (const std::string_view pointer : {kLatest, kBest}) remove_temporaries(folder_ / pointer);
  for (const fs::path& path : find_folders(folder_, kReplaced)) {
    const fs::path original = path.parent_path() / path.stem();
    if (is_there(original)) {
      retire(path);
    } else {
      rename_folder(path, original);
    }
  }
  sync_folder(folder_);
}

void FolderWriter::write(
    int64_t step, bool is_best,
    const std::function<std::vector<std::string>(const fs::path&)>& write_files) {
  if (!is_there(folder_)) {
    throw Error(Exit::kResource,
                "{}: the folder was deleted while the run saved checkpoints in it. Leave a run's "
                "folder as it is until the run has ended",
                folder_.string());
  }
  const std::string name = folder_name(step);
  const fs::path temporary = folder_ / (name + std::string(kTemporary));
  const RemovedAtEnd leftover = {temporary};
  try {
    remove_folder(temporary);
    make_folder(temporary);
    const auto names = write_files(temporary);
    const Manifest manifest = {step, next_sequence_, record_files(temporary, names), is_best};
    write_file(temporary / kManifestName, print_manifest(manifest));
    publish(temporary, folder_ / name);
  } catch (const Error& error) {
    if (error.status() != Exit::kResource) throw;
    throw Error(Exit::kResource,
                "{}; the checkpoint of step {} was not saved, those before it are untouched; make "
                "room or check permissions, then resume",
                error.what(), step);
  }
  ++next_sequence_;
  write_file(folder_ / kLatest, name + "\n");
  if (is_best) write_file(folder_ / kBest, name + "\n");
  remove_older();
}

void FolderWriter::publish(const fs::path& written, const fs::path& final) const {
  const fs::path replaced = with_ending(final, kReplaced);
  const bool replaces = is_there(final);
  if (replaces) rename_folder(final, replaced);
  try {
    rename_folder(written, final);
  } catch (const Error&) {
    if (replaces) rename_folder(replaced, final);
    throw;
  }
  sync_folder(folder_);
  if (replaces) remove_whole(replaced);
}

void FolderWriter::remove_older() const {
  if (keep_ == 0) return;
  std::optional<fs::path> best;
  try {
    best = read_pointer(folder_, kBest);
  } catch (const Error& error) {
    log::warning("{}; until there is a new best checkpoint, older ones are not removed",
                 error.what());
    return;
  }
  int64_t kept = 0;
  for (const Listed& checkpoint : list_checkpoints(folder_)) {
    if (++kept > keep_ && checkpoint.path != best) remove_whole(checkpoint.path);
  }
}

}  // namespace brim::checkpoint
