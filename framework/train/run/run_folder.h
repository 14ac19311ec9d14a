// A run's folder: which one a run gets, and what it holds (recipe.toml, run.json, metrics.jsonl,
// event file, checkpoints/). Nothing of an earlier run is ever overwritten.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "framework/base/files.h"

namespace brim::train {

struct RunFolder {
  std::filesystem::path path;
  /// The checkpoint to resume from; none for a fresh start.
  std::optional<std::filesystem::path> checkpoint = {};
  /// The run's name where the path is the first free runs/<name>…; another run may take it first.
  std::string numbered = {};
  /// Of the process that trains in it, which alone may write there. Null: not taken yet.
  std::shared_ptr<FileLock> lock = {};

  std::filesystem::path recipe() const { return path / "recipe.toml"; }
  std::filesystem::path record() const { return path / "run.json"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path tokenizer() const { return path / "tokenizer"; }
  /// The checkpoint is one of another folder.
  bool is_branch() const;
};

struct RunFolderOptions {
  std::string run_name;
  std::filesystem::path output;  // --output; empty: runs/<run_name>, or -2, -3, … where taken
  std::filesystem::path runs = "runs";  // the folder that is called runs/ here
  std::string resume;                   // --resume: "", "auto", or a run's or checkpoint's folder
  std::string launch = {};              // Ranks::launch
  bool is_restarted = false;            // the launcher has started this run before
  bool is_dry_run = false;              // takes no lock
};

/// Decides where the run lives and what it resumes from. A folder that is there is locked before
/// anything in it is read, and Error(kResource) where another process trains in it; nothing else
/// on disk is touched.
/// An --output that is a file, or holds runs and is none itself, is a UsageError.
///   restarted: as with auto, in the folder that the same launch made; afresh where it made none
///   no --resume: the folder must not hold a run yet; else Error(kRecipe)
///   auto: the newest checkpoint of the folder (of the newest runs/<run_name>… without --output),
///         or the other folder's that its run began with; a fresh start where there is none
///   PATH: that run's newest checkpoint, or that checkpoint; in its own run's folder unless
///   --output
///         names another. Error(kCheckpoint) where PATH holds none.
RunFolder choose_run_folder(const RunFolderOptions& options);

/// A checkpoint and its run.
struct SavedRun {
  std::filesystem::path checkpoint;
  RunFolder run;
};

/// Of a run's folder the best checkpoint, or the newest where none is best; or the checkpoint that
/// `path` is, or that checkpoints/latest or checkpoints/best names. Throws Error(kCheckpoint) where
/// there is none.
SavedRun find_saved(const std::filesystem::path& path);

/// What run.json says; an empty object where it is missing, longer than such files are, or damaged.
nlohmann::json read_record(const RunFolder& folder);

/// For a run whose loss is not finite: names the newest checkpoint from before the loss rose by
/// half of what it had fallen, as metrics.jsonl tells, or says that there is none.
std::string describe_last_good(const RunFolder& folder);

/// Makes the folder where it isn't there, locks it, writes recipe.toml and run.json, and returns
/// it: the next free one where another run has taken a numbered folder in the meantime. Throws
/// Error(kRecipe) where one has taken the --output meanwhile. Where the run continues, run.json
/// keeps what it said of the earlier parts under "earlier": of the first one and the newest, and
/// how many were left out between them ("earlier_dropped"). Throws Error(kResource) where it can't
/// be written.
RunFolder create_run_folder(RunFolder folder, const std::string& resolved_recipe,
                            nlohmann::json record);

}  // namespace brim::train
