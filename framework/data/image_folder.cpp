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
#include "framework/data/image.h"

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

class ImageFolder final : public Dataset {
 public:
  ImageFolder(const fs::path& root, const ImageFolderConfig& config, AugmentConfig augment)
      : size_(config.image_size),
        resize_(config.resize),
        augment_(augment),
        class_names_(class_names_in(root)) {
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
  ImageShape shape() const override { return {size_, size_, 3}; }
  int64_t classes() const override { return static_cast<int64_t>(class_names_.size()); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string name(int64_t index) const override { return paths_[static_cast<size_t>(index)]; }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    const std::string& path = paths_[static_cast<size_t>(index)];
    const std::string bytes = read_file(path, Exit::kData, kMaxFileBytes);
    const Image image =
        decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path);
    if (random == nullptr) {
      fit_image(view(image), shape(), resize_, pixels);
    } else {
      augment_image(view(image), shape(), resize_, augment_, *random, pixels);
    }
    return labels_[static_cast<size_t>(index)];
  }

 private:
  int64_t size_;
  int64_t resize_;
  AugmentConfig augment_;
  std::vector<std::string> class_names_;
  std::vector<std::string> paths_;
  std::vector<int64_t> labels_;
};

void check(const ImageFolderConfig& config) {
  if (config.resize < config.image_size) {
    throw Error(Exit::kRecipe, "[data]: expected 'resize' to be at least image_size ({}), found {}",
                config.image_size, config.resize);
  }
}

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

void ImageFolderConfig::fields(recipe::Fields& f) {
  TrainFolder train_folder{train};
  f.section("train", train_folder, "the training set");
  EvalFolder eval_folder{eval};
  f.section("eval", eval_folder, "the evaluation set");
  f.value("image_size", image_size, "height and width of what the model sees, in pixels",
          recipe::between(1, 4096));
  f.value("resize", resize,
          "length of the shorter side in pixels before the centre is cut out, for evaluation and "
          "for crops other than random_resized",
          recipe::between(1, 8192));
}

std::unique_ptr<Dataset> ImageFolderConfig::open_train(const AugmentConfig& augment) const {
  check(*this);
  return std::make_unique<ImageFolder>(train, *this, augment);
}

std::unique_ptr<Dataset> ImageFolderConfig::open_eval() const {
  check(*this);
  if (eval.empty()) return nullptr;
  auto dataset = std::make_unique<ImageFolder>(eval, *this, AugmentConfig{});
  const auto expected = class_names_in(train);
  const auto found = dataset->class_names();
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(expected, found, std::back_inserter(differing));
  if (!differing.empty()) {
    throw Error(Exit::kData, "{}: expected the class folders of {}; only one of the two has {}",
                eval.string(), train.string(), fmt::join(differing, ", "));
  }
  return dataset;
}

}  // namespace brim::data
