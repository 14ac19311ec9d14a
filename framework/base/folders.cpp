#include "framework/base/folders.h"

#include <dirent.h>
#include <fmt/ranges.h>
#include <strings.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "framework/base/error.h"

namespace brim {
namespace {

bool is_folder_entry(const std::string& folder, const dirent& entry) {
  if (entry.d_type == DT_DIR) return true;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return false;
  struct stat info {};  // a dangling link is not a folder
  return ::stat((folder + "/" + entry.d_name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

[[noreturn]] void throw_unreadable(const std::string& folder, int code) {
  throw Error(Exit::kData, "{}: cannot read the folder: {}", folder, errno_text(code));
}

void collect_files(const std::string& folder, std::span<const std::string_view> extensions,
                   std::set<FolderId>& seen, std::vector<std::string>& found) {
  if (!seen.insert(folder_id(folder)).second) return;
  const FolderContent content = list_folder(folder);
  for (const std::string& name : content.files) {
    if (has_extension(name, extensions)) found.push_back(folder + "/" + name);
  }
  for (const std::string& name : content.folders) {
    collect_files(folder + "/" + name, extensions, seen, found);
  }
}

}  // namespace

FolderContent list_folder(const std::string& folder) {
  const auto close = [](DIR* stream) { ::closedir(stream); };
  const std::unique_ptr<DIR, decltype(close)> stream(::opendir(folder.c_str()), close);
  if (stream == nullptr) throw_unreadable(folder, errno);
  FolderContent content;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) throw_unreadable(folder, errno);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name.starts_with('.')) continue;  // such as .ipynb_checkpoints, ._1.jpg
    (is_folder_entry(folder, *entry) ? content.folders : content.files).emplace_back(name);
  }
  std::ranges::sort(content.folders);
  std::ranges::sort(content.files);
  return content;
}

FolderId folder_id(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) throw_unreadable(folder, errno);
  return {info.st_dev, info.st_ino};
}

bool has_extension(std::string_view name, std::span<const std::string_view> extensions) {
  return std::ranges::any_of(extensions, [name](std::string_view extension) {
    return name.size() > extension.size() &&
           strncasecmp(name.data() + name.size() - extension.size(), extension.data(),
                       extension.size()) == 0;
  });
}

std::vector<std::string> files_below(const std::string& folder,
                                     std::span<const std::string_view> extensions) {
  std::string start = folder;
  while (start.size() > 1 && start.ends_with('/')) start.pop_back();
  std::set<FolderId> seen;
  std::vector<std::string> found;
  collect_files(start, extensions, seen, found);
  if (!found.empty()) return found;
  throw Error(Exit::kData, "{}: expected {} files in the folder or below it, found none", folder,
              fmt::join(extensions, ", "));
}

}  // namespace brim
