#include "framework/data/image_folder.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/data/encoded_images.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr std::array<std::string_view, 3> kExtensions = {".jpg", ".jpeg", ".png"};

struct Entry {
  std::string name;
  bool is_folder;  // or a link to one
};

/// What is in a folder, by name. Throws where it is missing or can't be read.
std::vector<Entry> list(const std::string& folder) {
  std::error_code code;
  std::vector<Entry> entries;
  fs::directory_iterator it(folder, code);
  for (; !code && it != fs::directory_iterator(); it.increment(code)) {
    std::error_code dangling;  // such a link is not a folder
    entries.push_back({it->path().filename().string(), it->is_directory(dangling)});
  }
  if (code) throw Error(Exit::kData, "{}: cannot read the folder: {}", folder, code.message());
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

bool is_image_name(const std::string& name) {
  std::string extension = fs::path(name).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::find(kExtensions, extension) != kExtensions.end();
}

/// A folder and the images right inside it, by name.
struct Listing {
  std::string folder;
  std::vector<std::string> images;
};

/// A folder as the file system knows it, whatever links lead to it.
using FolderId = std::pair<dev_t, ino_t>;

/// Lists `folder` and all below. Links are followed, except back into a folder that is being
/// listed (`above`).
void collect(const std::string& folder, std::vector<FolderId>& above,
             std::vector<Listing>& listings) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) {
    throw Error(Exit::kData, "{}: cannot read the folder: {}", folder, errno_text(errno));
  }
  const FolderId id = {info.st_dev, info.st_ino};
  if (std::ranges::find(above, id) != above.end()) return;
  above.push_back(id);
  Listing listing = {folder, {}};
  for (const Entry& entry : list(folder)) {
    if (entry.is_folder) {
      collect(folder + "/" + entry.name, above, listings);
    } else if (is_image_name(entry.name)) {
      listing.images.push_back(entry.name);
    }
  }
  listings.push_back(std::move(listing));
  above.pop_back();
}

/// Paths of the images in `folder` and below, in torchvision's order: by folder, then by name.
std::vector<std::string> images_below(const std::string& folder) {
  std::vector<FolderId> above;
  std::vector<Listing> listings;
  collect(folder, above, listings);
  std::ranges::sort(listings, {}, &Listing::folder);
  std::vector<std::string> paths;
  for (const Listing& listing : listings) {
    for (const std::string& name : listing.images) paths.push_back(listing.folder + "/" + name);
  }
  return paths;
}

std::vector<std::string> class_names_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const Entry& entry : list(root.string())) {
    if (entry.is_folder) names.push_back(entry.name);
  }
  if (names.empty()) {
    throw Error(Exit::kData, "{}: expected a folder for each class, found none", root.string());
  }
  return names;
}

class ImageFolder final : public EncodedImages {
 public:
  explicit ImageFolder(const fs::path& root) : class_names_(class_names_in(root)) {
    std::vector<std::string> empty;
    for (size_t label = 0; label < class_names_.size(); ++label) {
      auto paths = images_below((root / class_names_[label]).string());
      if (paths.empty()) empty.push_back(class_names_[label]);
      std::ranges::move(paths, std::back_inserter(paths_));
      labels_.resize(paths_.size(), static_cast<int64_t>(label));
    }
    if (!empty.empty()) {
      throw Error(Exit::kData, "{}: found no {} files in the class {} {}", root.string(),
                  fmt::join(kExtensions, ", "), empty.size() == 1 ? "folder" : "folders",
                  fmt::join(empty, ", "));
    }
  }

  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string name(int64_t index) const override { return paths_[static_cast<size_t>(index)]; }
  int64_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }
  std::span<const uint8_t> bytes(int64_t index, std::vector<uint8_t>& buffer) const override {
    read_file(paths_[static_cast<size_t>(index)], Exit::kData, kMaxFileBytes, buffer);
    return buffer;
  }

 private:
  std::vector<std::string> class_names_;
  std::vector<std::string> paths_;
  std::vector<int64_t> labels_;
};

struct TrainFolder {
  fs::path& path;
  void fields(recipe::Fields& f) {
    f.value("path", path, "folder with a folder for each class", recipe::Need::kRequired);
  }
};

struct EvalFolder {
  fs::path& path;
  void fields(recipe::Fields& f) {
    f.value("path", path, "folder with the same class folders; not given: no evaluation");
  }
};

}  // namespace

std::unique_ptr<EncodedImages> open_image_folder(const fs::path& root) {
  return std::make_unique<ImageFolder>(root);
}

void ImageFolderConfig::fields(recipe::Fields& f) {
  TrainFolder train_folder{train};
  f.section("train", train_folder, "the training set");
  EvalFolder eval_folder{eval};
  f.section("eval", eval_folder, "the evaluation set");
  options.fields(f);
}

std::unique_ptr<Dataset> ImageFolderConfig::open_train(const AugmentConfig& augment) const {
  options.check();
  return make_image_dataset(std::make_unique<ImageFolder>(train), options, augment);
}

std::unique_ptr<Dataset> ImageFolderConfig::open_eval() const {
  if (eval.empty()) return nullptr;
  auto images = std::make_unique<ImageFolder>(eval);
  const auto expected = class_names_in(train);
  const auto found = images->class_names();
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(expected, found, std::back_inserter(differing));
  if (!differing.empty()) {
    throw Error(Exit::kData, "{}: expected the class folders of {}; only one of the two has {}",
                eval.string(), train.string(), fmt::join(differing, ", "));
  }
  return make_image_dataset(std::move(images), options.for_evaluation(), {});
}

}  // namespace brim::data
