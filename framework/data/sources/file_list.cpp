#include "framework/data/sources/file_list.h"

#include <dirent.h>
#include <fmt/ranges.h>
#include <strings.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/machine.h"
#include "framework/data/parallel.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kExtensions = {".jpg", ".jpeg", ".png"};

/// What is right inside a folder, each by name.
struct Content {
  std::vector<std::string> folders;  // or links to one
  std::vector<std::string> images;
};

bool is_image_name(std::string_view name) {
  return std::ranges::any_of(kExtensions, [name](std::string_view extension) {
    return name.size() > extension.size() &&
           strncasecmp(name.data() + name.size() - extension.size(), extension.data(),
                       extension.size()) == 0;
  });
}

bool is_folder(const std::string& folder, const dirent& entry) {
  if (entry.d_type == DT_DIR) return true;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return false;
  struct stat info {};  // a dangling link is not a folder
  return ::stat((folder + "/" + entry.d_name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

[[noreturn]] void throw_unreadable(const std::string& folder, int code) {
  throw Error(Exit::kData, "{}: cannot read the folder: {}", folder, errno_text(code));
}

Content list(const std::string& folder) {
  const auto close = [](DIR* stream) { ::closedir(stream); };
  const std::unique_ptr<DIR, decltype(close)> stream(::opendir(folder.c_str()), close);
  if (stream == nullptr) throw_unreadable(folder, errno);
  Content content;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) throw_unreadable(folder, errno);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (is_folder(folder, *entry)) {
      content.folders.emplace_back(name);
    } else if (is_image_name(name)) {
      content.images.emplace_back(name);
    }
  }
  std::ranges::sort(content.folders);
  std::ranges::sort(content.images);
  return content;
}

/// A folder and the images right inside it.
struct Listing {
  std::string folder;
  std::vector<std::string> images;
};

/// A folder as the file system knows it, whatever links lead to it.
using FolderId = std::pair<dev_t, ino_t>;

/// Lists `folder` and all below, but not folders that are being listed (`above`).
void collect(const std::string& folder, std::vector<FolderId>& above,
             std::vector<Listing>& listings) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) throw_unreadable(folder, errno);
  const FolderId id = {info.st_dev, info.st_ino};
  if (std::ranges::find(above, id) != above.end()) return;
  above.push_back(id);
  Content content = list(folder);
  for (const std::string& name : content.folders) collect(folder + "/" + name, above, listings);
  if (!content.images.empty()) listings.push_back({folder, std::move(content.images)});
  above.pop_back();
}

std::vector<Listing> list_class(const std::string& folder) {
  std::vector<FolderId> above;
  std::vector<Listing> listings;
  collect(folder, above, listings);
  std::ranges::sort(listings, {}, &Listing::folder);
  return listings;
}

}  // namespace

std::vector<std::string> class_folders(const fs::path& root) {
  auto names = list(root.string()).folders;
  if (names.empty()) {
    throw Error(Exit::kData, "{}: expected a folder for each class, found none", root.string());
  }
  return names;
}

FileList::FileList(const fs::path& root) : class_names_(class_folders(root)) {
  std::vector<std::vector<Listing>> classes(class_names_.size());
  parallel_for(static_cast<int64_t>(classes.size()), usable_cores(), [&](int64_t label) {
    const auto i = static_cast<size_t>(label);
    classes[i] = list_class((root / class_names_[i]).string());
  });
  std::vector<std::string> empty;
  for (size_t label = 0; label < classes.size(); ++label) {
    if (classes[label].empty()) empty.push_back(class_names_[label]);
    for (Listing& listing : classes[label]) {
      for (const std::string& name : listing.images) {
        starts_.push_back(names_.size());
        names_.append(name).push_back('\0');
      }
      folders_.push_back({std::move(listing.folder), static_cast<int64_t>(label), size()});
    }
    classes[label] = {};
  }
  if (!empty.empty()) {
    throw Error(Exit::kData, "{}: found no {} files in the class {} {}", root.string(),
                fmt::join(kExtensions, ", "), empty.size() == 1 ? "folder" : "folders",
                fmt::join(empty, ", "));
  }
}

std::string FileList::path(int64_t index) const {
  return folder_of(index).path + "/" + (names_.data() + starts_[static_cast<size_t>(index)]);
}

const FileList::Folder& FileList::folder_of(int64_t index) const {
  return *std::ranges::upper_bound(folders_, index, {}, &Folder::end);
}

}  // namespace brim::data
