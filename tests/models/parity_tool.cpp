// Does to one of our models what a test then does to the same model in Python:
//
//   parity_tool JOB.toml
//
// Tensors come from and go to safetensors files. `input` holds "images" [batches, N, C, H, W] and
// "labels" [batches, N], or "tokens" and "labels", int64 [batches, N, T]; and, under "model.", the
// weights; or these are read from `pretrained`, as a run reads them; without weights the model
// starts from `seed`. Its dtype is that of the images, or float64 where `float64` is true. What is
// written depends on the task, with the names of the package `format` where one is given:
//   weights     all parameters and buffers of the model
//   shapes      the same without values, as JSON: {"name": [dtype, dimension…]}; takes no memory
//   logits      "logits" [batches, N, classes], or [batches, N, T, vocabulary], in evaluation mode,
//               and of the last batch "block.NAME", what each of the model's blocks gives
//   gradients   the parameters' gradients after one backward pass on the first batch
//   train       all parameters and buffers after `steps` steps, cycling through the batches, and
//               "losses" [steps]
#include <ATen/ATen.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/tensors.h"
#include "framework/nn/block.h"
#include "framework/nn/model.h"
#include "framework/nn/without_storage.h"
#include "framework/optim/optimizer.h"
#include "framework/recipe/load_library.h"
#include "framework/recipe/read.h"
#include "framework/train/tasks/language_modeling.h"
#include "framework/train/weights/pretrained.h"
#include "framework/train/weights/renamed_weights.h"
#include "models/register.h"

namespace brim {
namespace {

enum class Task { kWeights, kShapes, kLogits, kGradients, kTrain };
constexpr std::array<std::string_view, 5> kTaskWords = {"weights", "shapes", "logits", "gradients",
                                                        "train"};

template <class Base>
struct Section {
  recipe::Slot<Base> slot;
  explicit Section(std::string_view default_name) : slot(default_name) {}
  void fields(recipe::Fields& f) { f.component("name", slot, "registered name"); }
};

struct ModelSection : Section<nn::ModelConfig> {
  std::filesystem::path library;
  ModelSection() : Section("resnet18") {}
  void fields(recipe::Fields& f) {
    Section::fields(f);
    f.value("library", library, "shared library that has the model");
  }
};

struct Job : recipe::Config {
  Task task = Task::kWeights;
  std::filesystem::path input, output, pretrained, trace;
  std::string format;
  int64_t seed = 0, classes = 10, vocabulary = 50257, steps = 1;
  double learning_rate = 0.01, weight_decay = 0.0;
  amp::PrecisionMode precision = amp::PrecisionMode::kFp32;
  bool channels_last = false, float64 = false;
  ModelSection model;
  Section<optim::OptimizerConfig> optimizer{"sgd"};

  void fields(recipe::Fields& f) override {
    f.choice("task", task, kTaskWords, "what to do");
    f.value("input", input, "safetensors file", recipe::Need::kRequired);
    f.value("output", output, "safetensors file", recipe::Need::kRequired);
    f.value("pretrained", pretrained, "weights to start from");
    f.value("format", format, "package whose names the weights get");
    f.value("trace", trace, "where given, a Chrome trace of the pass that gradients takes");
    f.value("seed", seed, "of the initial weights");
    f.value("classes", classes, "outputs of the model, for images");
    f.value("vocabulary", vocabulary, "tokens that there are");
    f.value("steps", steps, "training steps");
    f.value("learning_rate", learning_rate, "of every step");
    f.value("weight_decay", weight_decay, "of every parameter");
    f.choice("precision", precision, amp::kPrecisionWords, "of the forward pass");
    f.value("channels_last", channels_last, "layout of weights and images");
    f.value("float64", float64, "compute in float64");
    f.section("model", model, "the model");
    f.section("optimizer", optimizer, "the optimizer");
  }
};

/// Records operations, with the types of their inputs, while it lives.
class Trace {
 public:
  explicit Trace(const std::filesystem::path& path) : path_(path) {
    if (path_.empty()) return;
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true);
    const std::set activities{torch::profiler::impl::ActivityType::CPU};
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
  }
  ~Trace() {
    if (!path_.empty()) torch::autograd::profiler::disableProfiler()->save(path_.string());
  }

 private:
  std::filesystem::path path_;
};

/// Keeps what each block of a model gives while it lives.
class BlockOutputs : public nn::BlockObserver {
 public:
  explicit BlockOutputs(nn::Model& model) : blocks_(nn::named_blocks(model)) {
    for (const auto& [name, block] : blocks_) block->observe(this);
  }
  ~BlockOutputs() override {
    for (const auto& [name, block] : blocks_) block->observe(nullptr);
  }
  void before(nn::Block& /*block*/, const at::Tensor& /*x*/) override {}
  void after(nn::Block& block, const at::Tensor& /*x*/, const at::Tensor& y) override {
    for (const auto& [name, each] : blocks_) {
      if (each == &block) outputs["block." + name] = y.contiguous();
    }
  }

  checkpoint::TensorMap outputs;

 private:
  std::vector<std::pair<std::string, nn::Block*>> blocks_;
};

class Runner {
 public:
  explicit Runner(const Job& job) : job_(job), precision_(resolve()) {
    checkpoint::TensorMap weights;
    for (auto& [name, tensor] : checkpoint::load_tensors(job.input)) {
      constexpr std::string_view kPrefix = "model.";
      if (name.starts_with(kPrefix)) weights[name.substr(kPrefix.size())] = tensor;
      if (name == "images" || name == "tokens") inputs_ = tensor;
      if (name == "labels") labels_ = tensor;
    }
    has_images_ = inputs_.dim() == 5;
    at::manual_seed(static_cast<uint64_t>(job.seed));
    std::optional<nn::WithoutStorage> without_storage;
    if (job.task == Task::kShapes) without_storage.emplace();
    model_ = job.model.slot->build(
        has_images_ ? nn::ModelShape{.channels = inputs_.size(2),
                                     .height = inputs_.size(3),
                                     .width = inputs_.size(4),
                                     .classes = job.classes}
                    : nn::ModelShape{.length = inputs_.size(2), .vocabulary = job.vocabulary});
    if (!job.pretrained.empty()) {
      train::load_pretrained(*model_, job.model.slot->weight_names(), job.pretrained, true);
    }
    // to() converts the integer buffers too, so it is left out where nothing needs it.
    const at::ScalarType type = job.float64   ? at::kDouble
                                : has_images_ ? inputs_.scalar_type()
                                              : at::kFloat;
    if (type != at::kFloat) model_->to(type);
    if (has_images_) inputs_ = inputs_.to(type);
    if (job.channels_last) nn::use_channels_last(*model_);
    if (!weights.empty()) {
      auto tensors = nn::named_tensors(*model_);
      const at::NoGradGuard no_grad;
      checkpoint::copy_into(weights, tensors, job.input.string());
    }
  }

  checkpoint::TensorMap weights() const { return renamed(nn::named_tensors(*model_)); }

  nlohmann::json shapes() const {
    auto result = nlohmann::json::object();
    for (const auto& [name, tensor] : weights()) {
      result[name] = {c10::toString(tensor.scalar_type())};
      for (const int64_t size : tensor.sizes()) result[name].push_back(size);
    }
    return result;
  }

  checkpoint::TensorMap logits() {
    const at::NoGradGuard no_grad;
    model_->eval();
    BlockOutputs blocks(*model_);
    std::vector<at::Tensor> logits;
    for (int64_t i = 0; i < inputs_.size(0); ++i) logits.push_back(model_->forward(batch(i)));
    checkpoint::TensorMap result = std::move(blocks.outputs);
    result["logits"] = at::stack(logits);
    return result;
  }

  checkpoint::TensorMap gradients() {
    {
      const at::Tensor inputs = batch(0), labels = labels_[0];
      const Trace trace(job_.trace);
      loss(inputs, labels).backward();
    }
    checkpoint::TensorMap gradients;
    for (const auto& item : model_->named_parameters()) gradients[item.key()] = item->grad();
    return renamed(gradients);
  }

  checkpoint::TensorMap train() {
    optim::ParameterGroup group;
    group.weight_decay = job_.weight_decay;
    for (const auto& item : model_->named_parameters()) {
      group.parameters.emplace_back(item.key(), item.value());
    }
    const auto optimizer = job_.optimizer.slot->build({group});
    std::vector<at::Tensor> losses;
    for (int64_t step = 0; step < job_.steps; ++step) {
      optimizer->zero_grad();
      const int64_t number = step % inputs_.size(0);
      losses.push_back(loss(batch(number), labels_[number]));
      losses.back().backward();
      optimizer->step(job_.learning_rate);
    }
    checkpoint::TensorMap result = weights();
    result["losses"] = at::stack(losses).detach();
    return result;
  }

 private:
  amp::Precision resolve() const {
    return amp::resolve(job_.precision, at::kCPU, amp::cpu_abilities());
  }
  checkpoint::TensorMap renamed(checkpoint::TensorMap tensors) const {
    for (const nn::WeightNames& names : job_.model.slot->weight_names()) {
      if (names.package == job_.format) return train::name_as_theirs(tensors, names);
    }
    return tensors;
  }
  at::Tensor batch(int64_t number) const {
    const at::Tensor inputs = inputs_[number];
    return job_.channels_last ? inputs.contiguous(at::MemoryFormat::ChannelsLast) : inputs;
  }
  at::Tensor loss(const at::Tensor& inputs, const at::Tensor& labels) {
    const amp::Autocast autocast(at::kCPU, precision_);
    if (!has_images_) {
      return language_.loss(
          *model_, {.inputs = inputs, .labels = labels, .partner_labels = {}, .label_shares = {}});
    }
    at::Tensor loss;
    for (const auto& [logits, weight] : model_->training_logits(inputs)) {
      const at::Tensor part = at::cross_entropy_loss(logits, labels);
      loss = loss.defined() ? loss + weight * part : part;
    }
    return loss;
  }

  const Job& job_;
  amp::Precision precision_;
  at::Tensor inputs_, labels_;
  bool has_images_ = true;
  std::shared_ptr<nn::Model> model_;
  train::LanguageModeling language_{/*label_smoothing=*/0.0};
};

void run(const Job& job) {
  Runner runner(job);
  const auto save = [&job](const checkpoint::TensorMap& tensors) {
    checkpoint::save_tensors(job.output, tensors);
  };
  switch (job.task) {
    case Task::kWeights:
      return save(runner.weights());
    case Task::kShapes:
      return write_file(job.output, runner.shapes().dump());
    case Task::kLogits:
      return save(runner.logits());
    case Task::kGradients:
      return save(runner.gradients());
    case Task::kTrain:
      return save(runner.train());
  }
}

int body(int argc, char** argv) {
  if (argc != 2) throw Error(Exit::kRecipe, "usage: parity_tool JOB.toml");
  models::register_all();
  optim::register_optimizers();
  const recipe::Value document = recipe::load(argv[1], {});
  recipe::load_library(document, "model", "library");
  Job job;
  recipe::read(document, job);
  run(job);
  return 0;
}

}  // namespace
}  // namespace brim

int main(int argc, char** argv) { return brim::run_program(brim::body, argc, argv); }
