#include "framework/nn/wrap.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <sstream>
#include <string>

#include "framework/base/error.h"
#include "framework/base/words.h"
#include "framework/nn/random_state.h"

namespace brim::nn {
namespace {

/// What LibTorch and its TorchScript interpreter threw, without their stacks.
std::string reason(const std::exception& problem) {
  const auto* error = dynamic_cast<const c10::Error*>(&problem);
  const std::string text = error != nullptr ? error->what_without_backtrace() : problem.what();
  const size_t last = text.rfind("\nRuntimeError: ");
  return last == std::string::npos ? text : text.substr(last + 1);
}

at::Tensor try_forward(Model& model, const ModelShape& shape) {
  const RandomState random(c10::kCPU);
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const auto weights = model.parameters();
  const auto type = weights.empty() ? at::kFloat : weights.front().scalar_type();
  const at::Tensor logits =
      model.forward(at::zeros({1, shape.channels, shape.height, shape.width}, type));
  model.train(was_training);
  random.restore();
  return logits;
}

}  // namespace

Wrapped::Wrapped(std::shared_ptr<torch::nn::Module> module, Forward forward, int64_t classes)
    : module_(std::move(module)), forward_(std::move(forward)), classes_(classes) {
  for (auto& item : module_->named_parameters(/*recurse=*/false)) {
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (auto& item : module_->named_buffers(/*recurse=*/false)) {
    register_buffer(item.key(), item.value());
  }
  for (auto& item : module_->named_children()) register_module(item.key(), item.value());
}

at::Tensor Wrapped::forward(const at::Tensor& images) {
  if (images.size(0) > 0) return forward_(images);
  at::Tensor sum = at::zeros({}, images.options());
  for (const at::Tensor& parameter : parameters()) sum = sum + parameter.sum();
  return sum.expand({0, classes_});
}

void Wrapped::train(bool on) {
  module_->train(on);
  Model::train(on);  // after it: modules that stay in evaluation mode are its matter
}

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  const std::string type = lower_case(c10::toString(tensor.scalar_type()));
  std::ostringstream sizes;
  sizes << tensor.sizes();
  return fmt::format("{} {}{}", type, sizes.str(),
                     tensor.is_cpu() ? "" : fmt::format(" on {}", tensor.device().str()));
}

void check_forward(Model& model, const ModelShape& shape) {
  at::Tensor logits;
  try {
    logits = try_forward(model, shape);
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& problem) {
    throw Error(
        Exit::kRecipe,
        "the model's forward() fails on an image of {} channels, {}x{}, as the data has: {}",
        shape.channels, shape.height, shape.width, reason(problem));
  }
  if (logits.defined() && logits.dim() == 2 && logits.size(0) == 1 &&
      logits.size(1) == shape.classes && logits.is_floating_point() && logits.is_cpu()) {
    return;
  }
  throw Error(Exit::kRecipe,
              "the model's forward() gives {} for one image: expected floating-point [1, {}], a "
              "value for each of the data's classes, on the image's device",
              text_of(logits), shape.classes);
}

}  // namespace brim::nn
