// The list of a checkpoint's files with their sizes and digests. It is written last: a folder
// without a whole manifest is not a checkpoint. Digests find damage, not malice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace brim::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";

struct FileRecord {
  std::string name;    // a plain file name: letters, digits, '.', '_', '-'
  int64_t size = 0;    // bytes
  std::string digest;  // XXH3-128, 32 hex digits
};

struct Manifest {
  int64_t step = 0;
  int64_t sequence = 0;  // counts the checkpoints written into a folder: the newest has the highest
  std::vector<FileRecord> files;
  bool is_best = false;  // of those so far, when it was written
};

/// True for a name that is safe to join to a folder.
bool is_plain_name(std::string_view name);

std::string print_manifest(const Manifest& manifest);

/// Throws Error(kCheckpoint), naming `where`, for anything that print_manifest() can't have
/// written.
Manifest parse_manifest(std::string_view text, const std::string& where);

/// The manifest in a checkpoint's folder. Throws Error(kCheckpoint) if it is missing or damaged.
Manifest read_manifest(const std::filesystem::path& checkpoint);

/// Sizes and digests of `names` in a folder, each read once.
std::vector<FileRecord> record_files(const std::filesystem::path& folder,
                                     const std::vector<std::string>& names);

/// Reads every file of the manifest; throws one Error(kCheckpoint) that lists each file that is
/// missing, truncated or changed, a line each.
void verify_files(const std::filesystem::path& checkpoint, const Manifest& manifest);

}  // namespace brim::checkpoint
