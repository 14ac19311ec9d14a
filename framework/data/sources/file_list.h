// The image files in a folder for each class, millions of them: names lie in one piece of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace brim::data {

/// In torchvision's order: classes are the folders in `root` by name, files come by folder, then by
/// name. Names that begin with a dot are passed over. Links are followed, except back into a folder
/// that is being listed.
class FileList {
 public:
  /// Lists with several threads. Throws Error(kData): a folder that can't be read, no classes, a
  /// class without images, splits in place of classes. Logs how many images of other formats
  /// are left out.
  explicit FileList(const std::filesystem::path& root);

  int64_t size() const { return static_cast<int64_t>(starts_.size()); }
  const std::vector<std::string>& class_names() const { return class_names_; }
  std::string path(int64_t index) const;
  int64_t label(int64_t index) const { return folder_of(index).label; }
  /// Throws Error(kData) naming the first file that is empty, no regular file or not to be found,
  /// of those looked at: the first of each class, and up to 1,000 spread evenly over the list. To
  /// look at all takes minutes on a network file system.
  void check_some() const;

 private:
  /// A folder with images right inside it.
  struct Folder {
    std::string path;
    int64_t label;
    int64_t end;  // the number of images up to and including its own
  };

  const Folder& folder_of(int64_t index) const;

  std::vector<std::string> class_names_;
  std::vector<Folder> folders_;
  std::string names_;  // of the files, each ended by a zero
  std::vector<uint64_t> starts_;
};

/// The names of the folders in `root`, in order. Throws Error(kData) where it can't be read or
/// holds none, or holds a data set's splits.
std::vector<std::string> class_folders(const std::filesystem::path& root);

/// "daisy, poppy": the first names, and how many there are where that isn't all.
std::string few_of(const std::vector<std::string>& names);

/// The image files in a folder and all below it, in files_below()'s order. Throws Error(kData)
/// where a folder can't be read or there is none.
std::vector<std::string> image_files_below(const std::string& folder);

}  // namespace brim::data
