#include "framework/train/observe/parameter_modules.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <typeinfo>

namespace brim::train {
namespace {

constexpr int kFarthest = 4;  // a cast of a transposed view of a parameter is three away

/// The parameter that `tensor` is, or is a view or a cast of.
const c10::TensorImpl* parameter_behind(const at::Tensor& tensor) {
  const torch::autograd::Node* node = tensor.grad_fn().get();
  for (int i = 0; node != nullptr && i < kFarthest; ++i) {
    if (typeid(*node) == typeid(torch::autograd::AccumulateGrad)) {
      return static_cast<const torch::autograd::AccumulateGrad*>(node)
          ->variable.unsafeGetTensorImpl();
    }
    node = node->num_outputs() == 1 ? node->next_edge(0).function.get() : nullptr;
  }
  return tensor.unsafeGetTensorImpl();
}

}  // namespace

ParameterModules::ParameterModules(const torch::nn::Module& model) {
  names_.emplace_back("input");
  for (const auto& item : model.named_modules(/*name_prefix=*/std::string())) {
    const auto parameters = item.value()->parameters(/*recurse=*/false);
    if (parameters.empty()) continue;
    for (const at::Tensor& parameter : parameters) {
      module_of_[parameter.unsafeGetTensorImpl()] = names_.size();
    }
    names_.push_back(item.key().empty() ? "model" : item.key());
  }
}

std::optional<size_t> ParameterModules::module_of(const at::Tensor& tensor) const {
  const auto found = module_of_.find(parameter_behind(tensor));
  return found == module_of_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace brim::train
