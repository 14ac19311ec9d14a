#include "framework/data/sources/idx_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "framework/base/error.h"
#include "framework/data/sources/idx.h"

namespace brim::data {
namespace {

constexpr int64_t kMaxSide = 65'500;
constexpr int64_t kMaxChannels = 16;

ImageShape image_shape(const std::vector<int64_t>& shape, const std::string& name) {
  if (shape.size() != 3 && shape.size() != 4) {
    throw Error(Exit::kData,
                "{}: expected images: 3 dimensions [n, height, width] or 4 [n, height, width, "
                "channels], found {} [{}]",
                name, shape.size(), fmt::join(shape, ", "));
  }
  const ImageShape result = {shape[1], shape[2], shape.size() == 4 ? shape[3] : 1};
  if (result.height > kMaxSide || result.width > kMaxSide || result.channels > kMaxChannels) {
    throw Error(Exit::kData, "{}: expected images of at most {} x {} x {}, found [{}]", name,
                kMaxSide, kMaxSide, kMaxChannels, fmt::join(shape, ", "));
  }
  return result;
}

/// Checks that every label is in [0, classes) and returns classes, found from the labels if null.
int64_t check_labels(const IdxFile& labels, std::optional<int64_t> classes) {
  const auto& array = labels.array();
  if (array.shape.size() != 1) {
    throw Error(Exit::kData, "{}: expected labels: 1 dimension, found {} [{}]", labels.name(),
                array.shape.size(), fmt::join(array.shape, ", "));
  }
  const auto greatest = std::ranges::max_element(array.values);
  if (!classes) return int64_t{*greatest} + 1;
  if (*greatest >= *classes) {
    throw Error(Exit::kData, "{}[{}]: expected a label from 0 to {}, found {}", labels.name(),
                greatest - array.values.begin(), *classes - 1, *greatest);
  }
  return *classes;
}

class IdxDataset final : public ImageSamples {
 public:
  IdxDataset(const IdxFiles& files, std::optional<int64_t> classes, AugmentConfig augment)
      : images_(files.images),
        labels_(files.labels),
        shape_(image_shape(images_.array().shape, images_.name())),
        classes_(check_labels(labels_, classes)),
        augment_(augment) {
    if (images_.array().shape[0] != labels_.array().shape[0]) {
      throw Error(Exit::kData, "{} holds {} images, but {} holds {} labels", images_.name(),
                  images_.array().shape[0], labels_.name(), labels_.array().shape[0]);
    }
  }

  int64_t size() const override { return images_.array().shape[0]; }
  ImageShape shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override { return numbered_classes(classes_); }
  std::string name(int64_t index) const override {
    return fmt::format("{}[{}]", images_.name(), index);
  }
  int64_t label(int64_t index) const override {
    return labels_.array().values[static_cast<size_t>(index)];
  }

  int64_t read(int64_t index, RandomStream* random, std::span<uint8_t> pixels) const override {
    const uint8_t* from = images_.array().values.data() + index * shape_.bytes();
    read_pixels(from, shape_, augment_, random, pixels);
    return label(index);
  }

 private:
  IdxFile images_;
  IdxFile labels_;
  ImageShape shape_;
  int64_t classes_;
  AugmentConfig augment_;
};

struct RequiredFiles {
  IdxFiles& files;
  void fields(recipe::Fields& f) {
    f.value("images", files.images, "IDX file of uint8 images, plain or gzip",
            recipe::Need::kRequired);
    f.value("labels", files.labels, "IDX file of uint8 labels, plain or gzip",
            recipe::Need::kRequired);
  }
};

struct OptionalFiles {
  IdxFiles& files;
  void fields(recipe::Fields& f) {
    f.value("images", files.images, "IDX file of uint8 images; with labels, or neither");
    f.value("labels", files.labels, "IDX file of uint8 labels");
  }
};

}  // namespace

void IdxConfig::fields(recipe::Fields& f) {
  RequiredFiles train_files{train};
  f.section("train", train_files, "the training set");
  OptionalFiles eval_files{eval};
  f.section("eval", eval_files, "the evaluation set");
  f.auto_or("classes", classes, "classes; auto: one more than the greatest training label",
            recipe::between(1, 256));
}

std::unique_ptr<Dataset> IdxConfig::open_train(const AugmentConfig& augment) const {
  return std::make_unique<IdxDataset>(train, classes, augment);
}

bool IdxConfig::has_eval() const {
  if (eval.images.empty() != eval.labels.empty()) {
    throw Error(Exit::kRecipe, "[data.eval]: '{}' is given without '{}'",
                eval.images.empty() ? "labels" : "images",
                eval.images.empty() ? "images" : "labels");
  }
  return !eval.images.empty();
}

std::unique_ptr<Dataset> IdxConfig::open_eval_for(const std::vector<std::string>& learned) const {
  if (!has_eval()) return nullptr;
  return std::make_unique<IdxDataset>(eval, std::ssize(learned), AugmentConfig{});
}

std::unique_ptr<Dataset> IdxConfig::open_eval() const {
  if (!has_eval()) return nullptr;
  const int64_t train_classes = check_labels(IdxFile(train.labels), classes);
  auto dataset = std::make_unique<IdxDataset>(eval, train_classes, AugmentConfig{});
  const ImageShape expected = image_shape(read_idx_shape(train.images), train.images.string());
  if (dataset->shape() != expected) {
    const ImageShape found = dataset->shape();
    throw Error(Exit::kData,
                "{}: expected images of {} x {} x {} as in {}, found {} x {} x {} (height, width, "
                "channels)",
                eval.images.string(), expected.height, expected.width, expected.channels,
                train.images.string(), found.height, found.width, found.channels);
  }
  return dataset;
}

}  // namespace brim::data
