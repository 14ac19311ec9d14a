#include "framework/data/dataset.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/units.h"

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

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();  // of a side, or classes
constexpr int64_t kMaxBytes = int64_t{1} << 40;

constexpr int64_t kDigestLabels = int64_t{1} << 21;
constexpr int64_t kDigestNames = 4096;
constexpr int64_t kDigestRows = 64;
constexpr size_t kDigestBytes = size_t{1} << 14;  // of text at once

/// f(index) for at most `most` of that many, evenly apart.
template <class F>
void for_some(int64_t count, int64_t most, const F& f) {
  const int64_t shown = std::min(count, most);
  for (int64_t i = 0; i < shown; ++i) f(i * count / shown);
}

/// "8×8×1 (height, width, channels) in 4 classes", "rows of 128 tokens out of 257".
std::string text_of_samples(const Dataset& dataset) {
  if (const ImageSamples* images = dataset.images()) {
    const ImageShape shape = images->shape();
    return fmt::format("{}×{}×{} (height, width, channels) in {} classes", shape.height,
                       shape.width, shape.channels, images->classes());
  }
  if (const TokenSamples* tokens = dataset.tokens()) {
    const TokenShape shape = tokens->shape();
    return fmt::format("rows of {} tokens out of {}{}", shape.length, shape.vocabulary,
                       shape.has_documents ? " that hold documents" : "");
  }
  return fmt::format("{} bytes", dataset.sample_bytes());
}

bool can_be(const Dataset& dataset) {
  const auto fits = [](int64_t size) { return size >= 1 && size <= kMaxSize; };
  if (const ImageSamples* images = dataset.images()) {
    const ImageShape shape = images->shape();
    if (!fits(shape.height) || !fits(shape.width) || !fits(shape.channels)) return false;
    return fits(images->classes()) && shape.height * shape.width <= kMaxBytes / shape.channels;
  }
  if (const TokenSamples* tokens = dataset.tokens()) {
    return fits(tokens->shape().length) && fits(tokens->shape().vocabulary);
  }
  return true;
}

}  // namespace

void check_samples(const Dataset& dataset, std::string_view which) {
  if (!can_be(dataset)) {
    throw Error(Exit::kData,
                "the {} data: expected sizes and classes of at least 1, and samples of at most {}, "
                "found {}",
                which, format_bytes(kMaxBytes), text_of_samples(dataset));
  }
  if (dataset.size() >= 1) return;
  throw Error(Exit::kData, "the {} data: expected at least one sample, found {}", which,
              dataset.size());
}

void check_evaluation(const Dataset& train, const Dataset* eval) {
  if (eval == nullptr) return;
  check_samples(*eval, "evaluation");
  const std::string expected = text_of_samples(train), found = text_of_samples(*eval);
  if (found == expected) return;
  throw Error(Exit::kData,
              "the evaluation data: expected samples like those of training, {}, found {}. Open "
              "both with the same shape and classes",
              expected, found);
}

std::string digest_of(const Dataset& dataset) {
  std::string text;
  const auto add = [&](std::string_view more) {
    text += more;
    if (text.size() > kDigestBytes) text = digest(std::as_bytes(std::span(text)));
  };
  const int64_t labels = dataset.classes() == 0 ? 0 : dataset.size();
  for_some(labels, kDigestLabels, [&](int64_t i) {
    const int64_t label = dataset.label(i);
    add({reinterpret_cast<const char*>(&label), sizeof(label)});
  });
  for_some(dataset.size(), kDigestNames, [&](int64_t i) {
    const std::string name = dataset.name(i);
    add(std::string_view(name).substr(name.rfind('/') + 1));
    add("\n");
  });
  if (dataset.tokens() != nullptr) {
    std::vector<uint8_t> row(static_cast<size_t>(dataset.sample_bytes()));
    for_some(dataset.size(), kDigestRows, [&](int64_t i) {
      try {
        dataset.read(i, nullptr, row);
        add(digest(std::as_bytes(std::span(row))));
      } catch (const Error&) {  // the loader says so, where it is read for a step
      }
    });
  }
  return digest(std::as_bytes(std::span(text)));
}

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
