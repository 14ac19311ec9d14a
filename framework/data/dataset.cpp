#include "framework/data/dataset.h"

#include <algorithm>
#include <utility>

namespace brim::data {
namespace {

class LabelsAlone final : public ImageSamples {
 public:
  explicit LabelsAlone(std::unique_ptr<Dataset> dataset)
      : dataset_(std::move(dataset)), images_(*dataset_->images()) {}

  int64_t size() const override { return images_.size(); }
  std::string name(int64_t index) const override { return images_.name(index); }
  ImageShape shape() const override { return images_.shape(); }
  int64_t classes() const override { return images_.classes(); }
  std::vector<std::string> class_names() const override { return images_.class_names(); }
  int64_t label(int64_t index) const override { return images_.label(index); }
  int64_t weight(int64_t index) const override { return images_.weight(index); }
  bool is_weighted() const override { return images_.is_weighted(); }
  std::optional<int64_t> length(int64_t index) const override { return images_.length(index); }
  std::span<const int64_t> shard_ends() const override { return images_.shard_ends(); }

  int64_t read(int64_t index, RandomStream* /*random*/, std::span<uint8_t> bytes) const override {
    std::ranges::fill(bytes, uint8_t{0});
    return label(index);
  }

 private:
  std::unique_ptr<Dataset> dataset_;
  const ImageSamples& images_;
};

}  // namespace

std::unique_ptr<Dataset> labels_alone(std::unique_ptr<Dataset> dataset) {
  if (dataset == nullptr || dataset->images() == nullptr) return dataset;
  return std::make_unique<LabelsAlone>(std::move(dataset));
}

std::vector<std::string> numbered_classes(int64_t classes) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace brim::data
