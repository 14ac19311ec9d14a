#include "framework/data/sources/image_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/printable.h"
#include "framework/data/sources/encoded_images.h"
#include "framework/data/sources/file_list.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxImageFileBytes = int64_t{1} << 30;

/// For each folder the label that its name has among the classes.
std::vector<int64_t> labels_among(const std::vector<std::string>& classes,
                                  const std::vector<std::string>& folders, const fs::path& root) {
  std::vector<int64_t> labels;
  std::vector<std::string> unknown;
  for (const std::string& folder : folders) {
    const auto found = std::ranges::find(classes, printable(folder));
    labels.push_back(found - classes.begin());
    if (found == classes.end()) unknown.push_back(folder);
  }
  if (unknown.empty()) return labels;
  throw Error(Exit::kData,
              "{}: expected folders of the classes that the model has learned ({}), found {}; "
              "rename or remove {}",
              root.string(), few_of(classes), few_of(unknown), unknown.size() > 1 ? "them" : "it");
}

/// With what the eye may not see in it: the same letter in another of Unicode's forms, a space.
std::string distinct(const std::string& name) {
  const bool is_plain = name.front() != ' ' && name.back() != ' ' &&
                        std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
  return is_plain ? name : fmt::format("{} ({})", printable(name), in_quotes(name));
}

class ImageFolder final : public EncodedImages {
 public:
  /// Classes are the folders in `root`.
  explicit ImageFolder(const fs::path& root)
      : files_(root), class_names_(files_.class_names()), labels_(class_names_.size()) {
    std::iota(labels_.begin(), labels_.end(), 0);
  }
  /// Classes are these, and the folders some of them.
  ImageFolder(const fs::path& root, std::vector<std::string> classes)
      : files_(root),
        class_names_(std::move(classes)),
        labels_(labels_among(class_names_, files_.class_names(), root)) {}

  int64_t size() const override { return files_.size(); }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::string name(int64_t index) const override { return files_.path(index); }
  int64_t label(int64_t index) const override {
    return labels_[static_cast<size_t>(files_.label(index))];
  }
  void check_files() const override { files_.check_some(); }
  std::span<const uint8_t> bytes(int64_t index, std::vector<uint8_t>& buffer) const override {
    read_file(files_.path(index), Exit::kData, kMaxImageFileBytes, buffer);
    return buffer;
  }

 private:
  FileList files_;
  std::vector<std::string> class_names_;
  std::vector<int64_t> labels_;  // by folder
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
  const auto expected = class_folders(train);
  const auto found = images->class_names();
  std::vector<std::string> missing, others;
  std::ranges::set_difference(expected, found, std::back_inserter(missing));
  std::ranges::set_difference(found, expected, std::back_inserter(others));
  if (!missing.empty() || !others.empty()) {
    const auto list = [](std::vector<std::string> names) {
      for (std::string& name : names) name = distinct(name);
      return names.empty() ? std::string("none") : fmt::format("{}", fmt::join(names, ", "));
    };
    throw Error(Exit::kData, "{}: expected the class folders of {}; missing: {}; unknown: {}",
                eval.string(), train.string(), list(missing), list(others));
  }
  return make_image_dataset(std::move(images), options.for_evaluation(), {});
}

std::unique_ptr<Dataset> ImageFolderConfig::open_eval_for(
    const std::vector<std::string>& classes) const {
  if (eval.empty()) return nullptr;
  options.check();
  return make_image_dataset(std::make_unique<ImageFolder>(eval, classes), options.for_evaluation(),
                            {});
}

}  // namespace brim::data
