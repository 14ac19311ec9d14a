#include "framework/nn/stage.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/error.h"

namespace brim::nn {
namespace {

/// A module that is there for the names of what lies in it.
class Named : public torch::nn::Module {};

std::shared_ptr<torch::nn::Module> child_of(const torch::nn::Module& module,
                                            const std::string& name) {
  const auto children = module.named_children();
  const auto* found = children.find(name);
  return found == nullptr ? nullptr : *found;
}

}  // namespace

Stage::Stage(std::shared_ptr<Sequence> whole, size_t first, size_t end)
    : whole_(std::move(whole)), first_(first), end_(end) {
  use_fused(whole_->fused());
  std::set<std::string> known;
  for (size_t i = first_; i < end_; ++i) {
    for (const std::string& name : whole_->parts()[i].reads) {
      if (known.insert(name).second) adopt(name);
    }
  }
  free_others();
}

void Stage::adopt(const std::string& name) {
  torch::nn::Module* from = whole_.get();
  torch::nn::Module* into = this;
  std::string rest = name;
  for (size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
    const std::string step = rest.substr(0, dot);
    const auto next = child_of(*from, step);
    if (next == nullptr) break;
    const auto there = child_of(*into, step);
    into = there != nullptr ? there.get()
                            : into->register_module(step, std::make_shared<Named>()).get();
    from = next.get();
    rest = rest.substr(dot + 1);
  }
  if (const auto module = child_of(*from, rest)) {
    into->register_module(rest, module);
  } else if (const auto parameters = from->named_parameters(/*recurse=*/false);
             parameters.contains(rest)) {
    into->register_parameter(rest, parameters[rest], parameters[rest].requires_grad());
  } else if (const auto buffers = from->named_buffers(/*recurse=*/false); buffers.contains(rest)) {
    into->register_buffer(rest, buffers[rest]);
  } else {
    throw Error(Exit::kBug, "a part of the model reads {}: expected one of its modules or tensors",
                name);
  }
}

void Stage::free_others() {
  const at::NoGradGuard no_grad;
  std::set<const void*> own;
  for (const at::Tensor& parameter : parameters()) own.insert(parameter.unsafeGetTensorImpl());
  for (auto& item : whole_->named_parameters()) {
    at::Tensor& parameter = item.value();
    if (own.contains(parameter.unsafeGetTensorImpl())) continue;
    const bool is_read = std::ranges::any_of(
        whole_->parts(), [&](const Part& part) { return reads(part, item.key()); });
    if (!is_read) throw Error(Exit::kBug, "no part of the model reads {}", item.key());
    parameter.set_requires_grad(false);
    parameter.set_data(at::empty({0}, parameter.options()));
  }
}

void Stage::train(bool on) {
  Model::train(on);
  whole_->train(on);  // after it: modules that stay in evaluation mode are its matter
}

Model& whole_of(Model& model) {
  auto* stage = dynamic_cast<Stage*>(&model);
  return stage == nullptr ? model : stage->whole();
}

bool reads(const Part& part, const std::string& tensor) {
  return std::ranges::any_of(part.reads, [&](const std::string& name) {
    return tensor == name || tensor.starts_with(name + ".");
  });
}

}  // namespace brim::nn
