#include "framework/data/sources/image_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/data/sources/encoded_images.h"
#include "framework/data/sources/file_list.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxImageFileBytes = int64_t{1} << 30;
class ImageFolder final : public EncodedImages {
 public:
  explicit ImageFolder(const fs::path& root) : files_(root) {}

  int64_t size() const override { return files_.size(); }
  std::vector<std::string> class_names() const override { return files_.class_names(); }
  std::string name(int64_t index) const override { return files_.path(index); }
  int64_t label(int64_t index) const override { return files_.label(index); }
  void check_files() const override { files_.check_some(); }
  std::span<const uint8_t> bytes(int64_t index, std::vector<uint8_t>& buffer) const override {
    read_file(files_.path(index), Exit::kData, kMaxImageFileBytes, buffer);
    return buffer;
  }

 private:
  FileList files_;
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
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(expected, found, std::back_inserter(differing));
  if (!differing.empty()) {
    throw Error(Exit::kData, "{}: expected the class folders of {}; only one of the two has {}",
                eval.string(), train.string(), fmt::join(differing, ", "));
  }
  return make_image_dataset(std::move(images), options.for_evaluation(), {});
}

}  // namespace brim::data
