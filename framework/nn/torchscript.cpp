#include "framework/nn/torchscript.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/serialization/import.h>

#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/nn/wrap.h"

namespace brim::nn {
namespace {

/// Where a tensor lies: a file holds one that two modules share as two of one storage.
using Place = std::tuple<const c10::StorageImpl*, int64_t, std::vector<int64_t>>;
using Places = std::map<Place, at::Tensor>;

Place place_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec()};
}

/// A scripted module's tensors and submodules as a torch::nn::Module has them, under its names.
/// A shared parameter is listed where it comes first.
class Mirror : public torch::nn::Module {
 public:
  Mirror(torch::jit::Module script, Places& parameters) : script_(std::move(script)) {
    for (const auto& item : script_.named_parameters(/*recurse=*/false)) {
      const auto [known, is_new] = parameters.try_emplace(place_of(item.value), item.value);
      if (is_new) {
        register_parameter(item.name, item.value, item.value.requires_grad());
      } else {
        script_.setattr(item.name, known->second);
      }
    }
    for (const auto& item : script_.named_buffers(/*recurse=*/false)) {
      register_buffer(item.name, item.value);
    }
    for (const auto& item : script_.named_children()) {
      register_module(item.name, std::make_shared<Mirror>(item.value, parameters));
    }
  }

  void train(bool on) override {
    torch::nn::Module::train(on);
    if (script_.hasattr("training")) script_.setattr("training", on);
  }

 private:
  torch::jit::Module script_;
};

struct Script {
  torch::jit::Module module;
  std::shared_ptr<Mirror> mirror;
};

Script load(const std::filesystem::path& file) {
  // Exhausted memory stays what it is, for the batch tuner, rather than a text.
  FLAGS_torch_jit_enable_rethrow_caught_exception = true;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    throw Error(Exit::kRecipe, "[model] torchscript: {}: there is no such file", file.string());
  }
  Script script;
  try {
    script.module = torch::jit::load(file.string(), c10::Device(c10::kCPU));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& problem) {
    const std::string text = problem.what();
    throw Error(Exit::kRecipe,
                "[model] torchscript: {}: expected a scripted module, as torch.jit.script(model)"
                ".save() makes it, but: {}",
                file.string(), text.substr(0, text.find('\n')));
  }
  Places parameters;
  script.mirror = std::make_shared<Mirror>(script.module, parameters);
  if (parameters.empty()) {
    throw Error(
        Exit::kRecipe,
        "[model] torchscript: {}: the module has no parameters to train; torch.jit.freeze() "
        "and torch.jit.optimize_for_inference() make constants of them",
        file.string());
  }
  return script;
}

/// Operators run as written, one by one: what the optimising executor makes of them depends on the
/// shapes of the first batches, and so would memory and results.
at::Tensor run(torch::jit::Module& module, const at::Tensor& images) {
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);
  const c10::IValue result = module.forward({images});
  if (result.isTensor()) return result.toTensor();
  throw Error(Exit::kRecipe,
              "[model] torchscript: forward() gives a {}; expected one tensor of logits",
              result.tagKind());
}

}  // namespace

void TorchScriptConfig::fields(recipe::Fields& f) {
  f.value("torchscript", file,
          "model that torch.jit.script(model).save() wrote, with the weights to start from; a "
          "program: name only one that you trust",
          recipe::Need::kRequired);
}

std::shared_ptr<Model> TorchScriptConfig::build(const ModelShape& shape) const {
  const Script script = load(file);
  auto model = std::make_shared<Wrapped>(
      script.mirror,
      [module = script.module](const at::Tensor& images) mutable { return run(module, images); },
      shape.classes);
  check_forward(*model, shape);
  return model;
}

std::string with_weights(const std::filesystem::path& file,
                         const std::map<std::string, at::Tensor>& weights) {
  const Script script = load(file);
  std::map<std::string, at::Tensor> places = named_tensors(*script.mirror);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : weights) {
    const auto place = places.find(name);
    if (place == places.end() || place->second.sizes() != tensor.sizes()) {
      throw Error(Exit::kCheckpoint,
                  "{}: the module has no {} of the checkpoint's shape; is it "
                  "the one that was trained?",
                  file.string(), name);
    }
    // Of a run in fp64 all digits stay.
    if (tensor.scalar_type() == at::kDouble) place->second.set_data(at::empty_like(tensor));
    place->second.copy_(tensor);
    places.erase(place);
  }
  if (!places.empty()) {
    throw Error(Exit::kCheckpoint, "{}: the checkpoint has no {}; is it of another module?",
                file.string(), places.begin()->first);
  }
  std::ostringstream bytes;
  script.module.save(bytes);
  return std::move(bytes).str();
}

}  // namespace brim::nn
