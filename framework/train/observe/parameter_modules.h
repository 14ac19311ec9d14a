// Which module of a model an operator works for: the one whose parameters it reads.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace brim::train {

/// The modules that have parameters of their own, numbered from 1 in the model's order; 0 is what
/// happens before the first of them. The model outlives it, and its parameters keep their identity.
class ParameterModules {
 public:
  explicit ParameterModules(const torch::nn::Module& model);

  /// By number: "input", then "layer1.0.conv1", …; "model" for the model itself.
  const std::vector<std::string>& names() const { return names_; }

  /// The module whose parameter `tensor` is, or is a view or a cast of; nullopt: none's.
  std::optional<size_t> module_of(const at::Tensor& tensor) const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<const c10::TensorImpl*, size_t> module_of_;  // by parameter
};

}  // namespace brim::train
