// Any torch::nn::Module as a model: one whose forward() takes images and gives logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "framework/nn/model.h"

namespace brim::nn {

/// A module seen as a model. Parameters, buffers and submodules are the module's own, under its own
/// names.
class Wrapped : public Model {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;
  Wrapped(std::shared_ptr<torch::nn::Module> module, Forward forward, int64_t classes);

  /// Of no images, which a rank gets when a step is too short for all, without asking the module;
  /// every parameter's gradient is then zero.
  at::Tensor forward(const at::Tensor& images) override;
  void train(bool on = true) override;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
  int64_t classes_;
};

/// For people: "long [2, 3]", "float [] on meta", "no tensor".
std::string text_of(const at::Tensor& tensor);

/// Throws Error(kRecipe) unless the model, on the CPU, takes one image of this shape and gives
/// floating-point numbers [1, classes] there. In evaluation mode; changes nothing.
void check_forward(Model& model, const ModelShape& shape);

/// `module` as a model, which check_forward() has tried.
template <class Module>
std::shared_ptr<Model> wrap(std::shared_ptr<Module> module, const ModelShape& shape) {
  Module& callee = *module;
  auto model = std::make_shared<Wrapped>(
      std::move(module), [&callee](const at::Tensor& images) { return callee.forward(images); },
      shape.classes);
  check_forward(*model, shape);
  return model;
}

}  // namespace brim::nn
