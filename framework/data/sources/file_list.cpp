#include "framework/data/sources/file_list.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/folders.h"
#include "framework/base/log.h"
#include "framework/base/machine.h"
#include "framework/base/parallel.h"
#include "framework/base/units.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kExtensions = {".jpg", ".jpeg", ".png"};
constexpr std::array<std::string_view, 13> kOtherExtensions = {
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2",
    ".jpe",  ".jxl", ".ppm", ".tif",  ".tiff", ".webp"};
constexpr std::array<std::string_view, 6> kSplits = {"train",      "val",  "valid",
                                                     "validation", "test", "eval"};
constexpr size_t kMaxListedNames = 10;
constexpr int64_t kMaxSpreadFiles = 1000;
constexpr int64_t kThreadsThatLook = 16;  // at files on another machine, too: they wait

bool is_image(std::string_view name) { return has_extension(name, kExtensions); }

/// A folder and the images right inside it.
struct Listing {
  std::string folder;
  std::vector<std::string> images;
};

/// What a class folder holds, and all folders below it.
struct ClassContent {
  std::vector<Listing> listings;
  int64_t others = 0;  // images of formats that are not read
};

/// Lists `folder` and all below, but not folders that are being listed (`above`).
void collect(const std::string& folder, std::vector<FolderId>& above, ClassContent& found) {
  const FolderId id = folder_id(folder);
  if (std::ranges::find(above, id) != above.end()) return;
  above.push_back(id);
  FolderContent content = list_folder(folder);
  for (const std::string& name : content.folders) collect(folder + "/" + name, above, found);
  found.others += std::ranges::count_if(
      content.files, [](const std::string& name) { return has_extension(name, kOtherExtensions); });
  std::erase_if(content.files, [](const std::string& name) { return !is_image(name); });
  if (!content.files.empty()) found.listings.push_back({folder, std::move(content.files)});
  above.pop_back();
}

/// `above`: where other classes and splits are; links that lead there are not followed.
ClassContent list_class(const std::string& folder, std::vector<FolderId> above) {
  ClassContent found;
  collect(folder, above, found);
  std::ranges::sort(found.listings, {}, &Listing::folder);
  return found;
}

/// Throws Error(kData) where the folders are a data set's splits, each with class folders.
void refuse_splits(const fs::path& root, const std::vector<std::string>& names) {
  const auto is_split = [](const std::string& name) {
    return std::ranges::find(kSplits, name) != kSplits.end();
  };
  const bool has_train = std::ranges::find(names, "train") != names.end();
  if (names.size() < 2 || !has_train || !std::ranges::all_of(names, is_split)) return;
  const FolderContent inside = list_folder((root / "train").string());
  if (inside.folders.empty() || std::ranges::any_of(inside.files, is_image)) return;
  throw Error(Exit::kData,
              "{}: expected a folder for each class, found the splits {}. Use {} as "
              "data.train.path, and another split as data.eval.path",
              root.string(), fmt::join(names, ", "), (root / "train").string());
}

void require_content(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw Error(Exit::kData, "{}: cannot read: {}", path, errno_text(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    throw Error(Exit::kData, "{}: expected a regular file, found {}", path,
                file_kind(info.st_mode));
  }
  if (info.st_size == 0) {
    throw Error(Exit::kData,
                "{}: expected an image, found an empty file. Replace or remove it, or set "
                "data.on_error = \"skip\"",
                path);
  }
}

/// As class_folders(), with what lies beside them.
FolderContent list_classes(const fs::path& root) {
  FolderContent content = list_folder(root.string());
  if (content.folders.empty()) {
    throw Error(Exit::kData, "{}: expected a folder for each class, found none", root.string());
  }
  refuse_splits(root, content.folders);
  return content;
}

}  // namespace

std::vector<std::string> class_folders(const fs::path& root) { return list_classes(root).folders; }

FileList::FileList(const fs::path& root) {
  FolderContent content = list_classes(root);
  class_names_ = std::move(content.folders);
  if (const int64_t strays = std::ranges::count_if(content.files, is_image); strays > 0) {
    log::warning("{}: {} left out: beside the class folders, so of no class", root.string(),
                 format_plural(strays, "image file"));
  }
  std::vector<FolderId> above = {folder_id("/")};
  std::error_code ignored;
  for (fs::path folder = fs::canonical(root, ignored); folder.has_relative_path();
       folder = folder.parent_path()) {
    above.push_back(folder_id(folder.string()));
  }
  std::vector<ClassContent> classes(class_names_.size());
  parallel_for(static_cast<int64_t>(classes.size()), usable_cores(), [&](int64_t label) {
    const auto i = static_cast<size_t>(label);
    classes[i] = list_class((root / class_names_[i]).string(), above);
  });
  std::vector<std::string> empty;
  int64_t others = 0;
  for (size_t label = 0; label < classes.size(); ++label) {
    others += classes[label].others;
    if (classes[label].listings.empty()) empty.push_back(class_names_[label]);
    for (Listing& listing : classes[label].listings) {
      for (const std::string& name : listing.images) {
        starts_.push_back(names_.size());
        names_.append(name).push_back('\0');
      }
      folders_.push_back({std::move(listing.folder), static_cast<int64_t>(label), size()});
    }
    classes[label] = {};
  }
  if (others != 0) {
    log::warning(
        "{}: {} left out: by name neither JPEG nor PNG (such as .bmp, .webp). Convert {} to PNG, "
        "or rename a JPEG to .jpg",
        root.string(), format_plural(others, "image file"), others == 1 ? "it" : "them");
  }
  if (!empty.empty()) {
    throw Error(Exit::kData, "{}: found no {} files in the class {} {}", root.string(),
                fmt::join(kExtensions, ", "), empty.size() == 1 ? "folder" : "folders",
                few_of(empty));
  }
}

std::string few_of(const std::vector<std::string>& names) {
  const std::span shown(names.data(), std::min(names.size(), kMaxListedNames));
  return fmt::format(
      "{}{}", fmt::join(shown, ", "),
      shown.size() < names.size() ? fmt::format(", … ({} in all)", names.size()) : "");
}

std::vector<std::string> image_files_below(const std::string& folder) {
  return files_below(folder, kExtensions);
}

std::string FileList::path(int64_t index) const {
  return folder_of(index).path + "/" + (names_.data() + starts_[static_cast<size_t>(index)]);
}

void FileList::check_some() const {
  std::vector<int64_t> looked_at;
  int64_t start = 0;
  int64_t label = -1;
  for (const Folder& folder : folders_) {
    if (folder.label != label) looked_at.push_back(start);
    label = folder.label;
    start = folder.end;
  }
  const int64_t spread = std::min(size(), kMaxSpreadFiles);
  for (int64_t i = 0; i < spread; ++i) looked_at.push_back(i * size() / spread);
  std::ranges::sort(looked_at);
  looked_at.erase(std::unique(looked_at.begin(), looked_at.end()), looked_at.end());
  parallel_for(std::ssize(looked_at), kThreadsThatLook,
               [&](int64_t i) { require_content(path(looked_at[static_cast<size_t>(i)])); });
}

const FileList::Folder& FileList::folder_of(int64_t index) const {
  return *std::ranges::upper_bound(folders_, index, {}, &Folder::end);
}

}  // namespace brim::data
