// What the trainer needs of a model, and the config struct that builds one. A model is any
// torch::nn::Module with forward(); models/ holds ours.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/nn/weight_names.h"
#include "framework/recipe/part.h"

namespace brim::nn {

/// What a dataset feeds a model: images [N, channels, height, width], labels in [0, classes).
struct ModelShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
};

/// Logits [N, classes], and how much their loss counts.
struct WeightedLogits {
  at::Tensor logits;
  double weight = 1.0;
};

class Model : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  /// Images [N, C, H, W] to logits [N, classes].
  virtual at::Tensor forward(const at::Tensor& images) = 0;
  /// All that a classification is trained on: those of forward() first, then those of auxiliary
  /// heads, where the model has any.
  virtual std::vector<WeightedLogits> training_logits(const at::Tensor& images) {
    return {{forward(images), 1.0}};
  }

  /// From now on these modules of the model stay in evaluation mode, whatever train() says.
  void keep_in_evaluation(std::vector<torch::nn::Module*> modules) {
    in_evaluation_ = std::move(modules);
    train(is_training());
  }
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    for (torch::nn::Module* module : in_evaluation_) module->eval();
  }

 private:
  std::vector<torch::nn::Module*> in_evaluation_;
};

/// Base of every model's config struct; registered in models/register.cpp.
class ModelConfig : public recipe::Part {
 public:
  /// A freshly initialised fp32 model on the CPU, from LibTorch's default generator. Throws
  /// Error(kRecipe) where the model can't take this shape.
  virtual std::shared_ptr<Model> build(const ModelShape& shape) const = 0;
  /// The packages that have this model, with their names for its weights.
  virtual std::vector<WeightNames> weight_names() const { return {}; }
};

/// For build(): throws Error(kRecipe) unless there is at least one channel, two classes, and
/// images of at least `smallest_side` pixels each way. `model` is the name for the message.
void require_shape(std::string_view model, const ModelShape& shape, int64_t smallest_side);

/// All parameters and buffers by name, as a state_dict has them. Each refers to the live tensor.
std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& module);

/// Lays every convolution weight (4-D parameter) out as channels_last, so that channels_last images
/// stay so from layer to layer. Parameters keep their identity.
void use_channels_last(torch::nn::Module& module);

}  // namespace brim::nn
