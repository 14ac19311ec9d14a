// Does to one of our language models what a test then does to the same model in Python:
//
//   token_parity_tool JOB.toml
//
// Tensors come from and go to safetensors files. `input` holds "tokens" and "labels", both int64
// [batches, N, T]; `weights` is the other package's own file. What is written depends on the task:
//   names       the model's parameters as float32 tensors [their sizes], made without memory
//   logits      "logits" [batches, N, T, vocabulary] in evaluation mode
//   gradients   the parameters' gradients after one backward pass on the first batch
//   train       all parameters after `steps` steps of plain SGD, cycling through the batches
#include <ATen/ATen.h>

#include <array>

#include "framework/base/error.h"
#include "framework/checkpoint/tensors.h"
#include "framework/nn/model.h"
#include "framework/recipe/read.h"
#include "framework/train/tasks/language_modeling.h"
#include "framework/train/weights/pretrained.h"
#include "models/gpt2/gpt2.h"
#include "models/register.h"

namespace brim {
namespace {

enum class Task { kNames, kLogits, kGradients, kTrain };
constexpr std::array<std::string_view, 4> kTaskWords = {"names", "logits", "gradients", "train"};

struct ModelSection {
  recipe::Slot<nn::ModelConfig> slot{"gpt2"};
  void fields(recipe::Fields& f) { f.component("name", slot, "registered name"); }
};

struct Job : recipe::Config {
  Task task = Task::kNames;
  std::filesystem::path input, weights, output;
  int64_t vocabulary = 50257, length = 1024, steps = 1;
  double learning_rate = 0.01;
  bool in_double = false;
  ModelSection model;

  void fields(recipe::Fields& f) override {
    f.choice("task", task, kTaskWords, "what to do");
    f.value("input", input, "safetensors file");
    f.value("weights", weights, "safetensors file");
    f.value("output", output, "safetensors file", recipe::Need::kRequired);
    f.value("vocabulary", vocabulary, "tokens that there are");
    f.value("length", length, "tokens in a row");
    f.value("steps", steps, "training steps");
    f.value("learning_rate", learning_rate, "of every step");
    f.value("in_double", in_double, "float64 instead of float32");
    f.section("model", model, "the model");
  }
};

using checkpoint::TensorMap;

/// Zeros in the sizes of the model's tensors, a scalar of each: names and shapes are all.
TensorMap names(const Job& job) {
  const auto& config = dynamic_cast<const models::gpt2::GptConfig&>(*job.model.slot);
  const auto model =
      config.build_on(at::kMeta, {.length = job.length, .vocabulary = job.vocabulary});
  TensorMap result;
  for (const auto& [name, tensor] : nn::named_tensors(*model)) {
    result[name] = at::tensor(tensor.sizes(), at::kLong);
  }
  return result;
}

class Runner {
 public:
  explicit Runner(const Job& job)
      : job_(job),
        input_(checkpoint::load_tensors(job.input)),
        model_(job.model.slot->build({.length = job.length, .vocabulary = job.vocabulary})) {
    train::load_pretrained(*model_, job.model.slot->weight_names(), job.weights, /*strict=*/true);
    if (job.in_double) model_->to(at::kDouble);
  }

  TensorMap logits() {
    const at::NoGradGuard no_grad;
    model_->eval();
    std::vector<at::Tensor> logits;
    for (int64_t i = 0; i < batches(); ++i) logits.push_back(model_->forward(batch(i).inputs));
    return {{"logits", at::stack(logits)}};
  }

  TensorMap gradients() {
    task_.loss(*model_, batch(0)).backward();
    TensorMap gradients;
    for (const auto& item : model_->named_parameters()) gradients[item.key()] = item->grad();
    return gradients;
  }

  TensorMap train() {
    for (int64_t step = 0; step < job_.steps; ++step) {
      model_->zero_grad();
      task_.loss(*model_, batch(step % batches())).backward();
      const at::NoGradGuard no_grad;
      for (auto& parameter : model_->parameters()) {
        parameter.sub_(job_.learning_rate * parameter.grad());
      }
    }
    return nn::named_tensors(*model_);
  }

 private:
  int64_t batches() const { return input_.at("tokens").size(0); }
  data::DeviceBatch batch(int64_t index) const {
    return {.inputs = input_.at("tokens")[index],
            .labels = input_.at("labels")[index],
            .partner_labels = {},
            .label_shares = {}};
  }

  const Job& job_;
  TensorMap input_;
  std::shared_ptr<nn::Model> model_;
  train::LanguageModeling task_{0.0};
};

TensorMap run(const Job& job) {
  switch (job.task) {
    case Task::kNames:
      return names(job);
    case Task::kLogits:
      return Runner(job).logits();
    case Task::kGradients:
      return Runner(job).gradients();
    case Task::kTrain:
      return Runner(job).train();
  }
  return {};
}

int body(int argc, char** argv) {
  if (argc != 2) throw Error(Exit::kRecipe, "usage: token_parity_tool JOB.toml");
  models::register_all();
  Job job;
  recipe::read(recipe::load(argv[1], {}), job);
  checkpoint::save_tensors(job.output, run(job));
  return 0;
}

}  // namespace
}  // namespace brim

int main(int argc, char** argv) { return brim::run_program(brim::body, argc, argv); }
