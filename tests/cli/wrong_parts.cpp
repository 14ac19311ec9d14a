// A model, a dataset and a task, each of which breaks the rule of its interface that the recipe's
// key `wrong` names, for test_wrong_parts.py. BRIM_WRONG_PARTS names what registering them does
// wrong.
#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "framework/data/source.h"
#include "framework/nn/wrap.h"
#include "framework/recipe/library.h"
#include "framework/train/callbacks.h"
#include "framework/train/tasks/task.h"

namespace {

using namespace brim;  // as a user of the interface would

struct Net : torch::nn::Module {
  Net(std::string wrong, int64_t inputs, int64_t classes)
      : wrong(std::move(wrong)), classes(classes), linear(inputs, classes), norm(classes) {
    if (this->wrong == "one value") register_module("norm", norm);
    if (this->wrong != "unregistered") register_module("linear", linear);
    if (this->wrong == "frozen") linear->weight.requires_grad_(false);
    if (this->wrong == "frozen") linear->bias.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor logits = linear(images.flatten(1));
    if (wrong == "undefined") return {};
    if (wrong == "one value") return norm(logits);
    if (wrong == "long") return logits.to(at::kLong);
    if (wrong == "complex") return logits.to(at::kComplexFloat);
    if (wrong == "meta") return logits.to(at::kMeta);
    if (wrong == "wide") return at::cat({logits, logits}, 1);
    return wrong == "detached" ? logits.detach() : logits;
  }
  std::string wrong;
  int64_t classes;
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;  // LibTorch's, which refuses batches of one sample
};

/// Not wrapped, so that only a task can say what is wrong: a value for each pixel.
struct PixelNet : nn::Model {
  PixelNet() { register_module("scale", scale); }
  at::Tensor forward(const at::Tensor& images) override {
    return scale(images.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
  }
  torch::nn::Linear scale{1, 1};
};

struct NetConfig : nn::ModelConfig {
  std::string wrong;
  void fields(recipe::Fields& f) override { f.value("wrong", wrong, "what is wrong"); }
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override {
    if (wrong == "null") return nullptr;
    if (wrong == "pixels") return std::make_shared<PixelNet>();
    const int64_t inputs = shape.channels * shape.height * shape.width;
    return nn::wrap(std::make_shared<Net>(wrong, inputs, shape.classes), shape);
  }
};

/// Two keys of one name, and one of its section's.
struct TwiceConfig : NetConfig {
  int64_t width = 1;
  void fields(recipe::Fields& f) override {
    f.value("width", width, "a width");
    f.value("width", width, "the same again");
    f.value("pretrained", wrong, "a key of [model]");
  }
};

struct Samples : data::ImageSamples {
  explicit Samples(std::string wrong) : wrong(std::move(wrong)) {}
  int64_t size() const override { return wrong == "empty" ? 0 : wrong == "negative" ? -3 : 40; }
  data::ImageShape shape() const override {
    if (wrong == "no pixels") return {0, 8, 1};
    if (wrong == "negative pixels") return {-8, 8, 1};
    if (wrong == "huge") return {int64_t{1} << 31, int64_t{1} << 31, 4};
    return wrong == "larger" ? data::ImageShape{9, 9, 1} : data::ImageShape{8, 8, 1};
  }
  int64_t classes() const override {
    if (wrong == "no classes") return 0;
    if (wrong == "negative classes") return -4;
    return wrong == "more classes" ? 6 : 4;
  }
  std::vector<std::string> class_names() const override {
    return data::numbered_classes(classes());
  }
  std::string name(int64_t index) const override { return "wrong[" + std::to_string(index) + "]"; }
  int64_t label(int64_t index) const override {
    return index == 7 && wrong == "label" ? 9 : index % 4;
  }
  int64_t read(int64_t index, RandomStream* /*random*/, std::span<uint8_t> pixels) const override {
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(index * 7);
    return label(index);
  }
  std::string wrong;
};

struct SamplesConfig : data::SourceConfig {
  std::string wrong, wrong_eval;
  void fields(recipe::Fields& f) override {
    f.value("wrong", wrong, "what is wrong with the training data");
    f.value("wrong_eval", wrong_eval, "what is wrong with the evaluation data");
  }
  std::unique_ptr<data::Dataset> open_train(const data::AugmentConfig& /*augment*/) const override {
    if (wrong == "null") return nullptr;
    return std::make_unique<Samples>(wrong);
  }
  std::unique_ptr<data::Dataset> open_eval() const override {
    return std::make_unique<Samples>(wrong_eval);
  }
};

struct WrongTask : train::Task {
  explicit WrongTask(std::string wrong) : wrong(std::move(wrong)) {}
  at::Tensor loss(nn::Model& model, const data::DeviceBatch& batch) const override {
    const at::Tensor logits = model.forward(batch.inputs).to(at::kFloat);
    if (wrong == "undefined loss") return {};
    if (wrong == "vector loss") return logits.sum(1);
    if (wrong == "long loss") return at::ones({}, at::kLong);
    const at::Tensor labels = wrong == "labels" ? batch.labels + 4 : batch.labels;
    const at::Tensor loss = at::cross_entropy_loss(logits, labels);
    return wrong == "detached loss" ? loss.detach() : loss;
  }
  at::Tensor evaluation_sums(nn::Model& /*model*/, const data::DeviceBatch& batch) const override {
    if (wrong == "undefined sums") return {};
    if (wrong == "float sums") return at::ones({3});
    if (wrong == "scalar sums") return at::ones({}, at::kDouble);
    if (wrong == "varying sums") return at::ones({batch.inputs.size(0)}, at::kDouble);
    return at::ones({3}, at::kDouble);
  }
  train::Metrics metrics(const at::Tensor& /*sums*/) const override {
    if (wrong == "no metrics") return {};
    if (wrong == "nameless metric") return {{"loss", 1}, {"", 2}};
    if (wrong == "metric of two lines") return {{"my\nloss", 1}, {"top1", 2}};
    if (wrong == "metric twice") return {{"loss", 1}, {"top1", 2}, {"top1", 3}};
    return {{"loss", 1}, {"top1", 2}};
  }
  train::BestBy best_by() const override {
    return {wrong == "best by nothing" ? "" : wrong == "best by another" ? "top5" : "top1"};
  }
  std::string wrong;
};

struct WrongTaskConfig : train::TaskConfig {
  std::string wrong;
  void fields(recipe::Fields& f) override { f.value("wrong_task", wrong, "what is wrong"); }
  bool takes(nn::InputKind /*kind*/) const override { return true; }
  std::unique_ptr<train::Task> build(const train::TaskOptions& /*options*/) const override {
    if (wrong == "null") return nullptr;
    return std::make_unique<WrongTask>(wrong);
  }
};

}  // namespace

BRIM_LIBRARY {
  auto& models = recipe::registry<nn::ModelConfig>();
  models.add<NetConfig>("wrong_net", "wrong as asked for");
  models.add<TwiceConfig>("twice", "keys that are there already");
  recipe::registry<data::SourceConfig>().add<SamplesConfig>("wrong_samples", "wrong as asked for");
  recipe::registry<train::TaskConfig>().add<WrongTaskConfig>("wrong_task", "wrong as asked for");
  const char* asked = std::getenv("BRIM_WRONG_PARTS");
  const std::string wrong = asked == nullptr ? "" : asked;
  if (wrong == "taken name") models.add<NetConfig>("mlp", "not Brim's");
  if (wrong == "empty name") models.add<NetConfig>("", "of no name");
  if (wrong == "null callback") train::callbacks().push_back(nullptr);
}
