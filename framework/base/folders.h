// What lies in folders, by name. Names that begin with a dot are passed over, links are followed.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace brim {

/// What is right inside a folder, each by name.
struct FolderContent {
  std::vector<std::string> folders;  // or links to one
  std::vector<std::string> files;    // and all that is no folder
};

/// Throws Error(kData) where the folder can't be read.
FolderContent list_folder(const std::string& folder);

/// A folder as the file system knows it, whatever links lead to it. Throws Error(kData) too.
using FolderId = std::pair<dev_t, ino_t>;
FolderId folder_id(const std::string& folder);

/// Whether a file's name ends in one of these, such as ".png", in capitals or not.
bool has_extension(std::string_view name, std::span<const std::string_view> extensions);

/// Paths of the files with one of the extensions in `folder` and all folders below it, those of a
/// folder by name and before those of the folders in it; of a folder to which several links lead,
/// once. Throws Error(kData) where a folder can't be read, or none of them holds such a file.
std::vector<std::string> files_below(const std::string& folder,
                                     std::span<const std::string_view> extensions);

}  // namespace brim
