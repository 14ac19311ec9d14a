// What the trainer needs of a model, and the config struct that builds one. A model is any
// torch::nn::Module with forward(); models/ holds ours.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/nn/fused.h"
#include "framework/nn/weight_names.h"
#include "framework/recipe/registry.h"

namespace brim::nn {

enum class InputKind { kImages, kTokens };

/// What a dataset feeds a model: images [N, channels, height, width] with labels in [0, classes),
/// or tokens [N, length], each in [0, vocabulary). What is of the other kind is 0.
struct ModelShape {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
  int64_t length = 0;
  int64_t vocabulary = 0;
  bool has_documents = false;  // tokens come as [N, 3, length]; see Model::forward()

  InputKind kind() const { return length > 0 ? InputKind::kTokens : InputKind::kImages; }
};

/// Logits [N, classes], and how much their loss counts.
struct WeightedLogits {
  at::Tensor logits;
  double weight = 1.0;
};

/// Fused, so is the loss that a task makes of its logits.
class Model : public torch::nn::Module, public Fusable {
 public:
  using torch::nn::Module::Module;
  /// Images [N, C, H, W] to logits [N, classes], floating-point, on the same device and with a
  /// gradient; or tokens, int64 [N, T], to logits [N, T, V], those of the next token, with V at
  /// least the vocabulary. Where rows hold documents, tokens come as [N, 3, T]: ids, positions
  /// within a document, and the document's number in its row, within which attention stays; 0 where
  /// the row is empty.
  virtual at::Tensor forward(const at::Tensor& inputs) = 0;
  /// All that a classification is trained on: those of forward() first, then those of auxiliary
  /// heads, where the model has any.
  virtual std::vector<WeightedLogits> training_logits(const at::Tensor& inputs) {
    return {{forward(inputs), 1.0}};
  }
  /// The mean cross-entropy of forward()'s logits, over the labels [N, T] that are not
  /// `ignore_index`, without the logits in memory where that is faster. Undefined: it has no such
  /// form.
  virtual at::Tensor token_loss(const at::Tensor& /*inputs*/, const at::Tensor& /*labels*/,
                                int64_t /*ignore_index*/) {
    return {};
  }
  /// Called with the tensors of a file of weights, under this model's names where it has them,
  /// before they are compared with the model's: leaves out what is no weight, and lays out again
  /// what lies otherwise there. Throws Error(kCheckpoint) for what can't be taken.
  virtual void adapt_weights(std::map<std::string, at::Tensor>& /*theirs*/) const {}
  /// Called with the config.json that transformers writes beside a file of weights, `where`. Throws
  /// Error(kCheckpoint) where it says of the model what the tensors' shapes don't, and what is
  /// otherwise here, such as the number of heads.
  virtual void require_same(const nlohmann::json& /*config*/, const std::string& /*where*/) const {}

  /// From now on these modules of the model stay in evaluation mode, whatever train() says.
  void keep_in_evaluation(std::vector<torch::nn::Module*> modules) {
    in_evaluation_ = std::move(modules);
    train(is_training());
  }
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    for (torch::nn::Module* module : in_evaluation_) module->eval();
  }
  using torch::nn::Module::to;
  /// As in Python: buffers of integers, such as counters of batch norms, keep their type.
  void to(c10::Device device, c10::ScalarType dtype, bool non_blocking = false) override;
  void to(c10::ScalarType dtype, bool non_blocking = false) override;

 private:
  std::vector<torch::nn::Module*> in_evaluation_;
};

/// Base of every model's config struct; registered in models/register.cpp.
class ModelConfig : public recipe::Config {
 public:
  virtual bool takes(InputKind kind) const { return kind == InputKind::kImages; }
  /// A freshly initialised fp32 model on the CPU, never null and with parameters, from LibTorch's
  /// default generator. `shape` is of a kind that it takes. Throws Error(kRecipe) where the model
  /// can't take this shape.
  virtual std::shared_ptr<Model> build(const ModelShape& shape) const = 0;
  /// The packages that have this model, with their names for its weights.
  virtual std::vector<WeightNames> weight_names() const { return {}; }
  /// Called with weights of a model that was built for `shape`, before they get a package's names:
  /// leaves out what that package's model lacks, such as rows of padding.
  virtual void leave_out_padding(std::map<std::string, at::Tensor>& /*weights*/,
                                 const ModelShape& /*shape*/) const {}
  /// Whether forward() takes rows that hold documents, where it takes tokens.
  virtual bool takes_documents() const { return false; }
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
