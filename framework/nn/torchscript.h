// A model scripted in Python: torch.jit.script(model).save("model.pt"). Such a file holds a
// program, which runs here, so it must come from someone trusted. No Python pickle is read:
// LibTorch has an unpickler of its own for TorchScript, which makes tensors and plain values only.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "framework/nn/model.h"

namespace brim::nn {

/// `[model] torchscript = "model.pt"`. The weights in the file are what training starts from.
struct TorchScriptConfig : ModelConfig {
  std::filesystem::path file;

  void fields(recipe::Fields& f) override;
  /// Throws Error(kRecipe) also where the file is none of torch.jit.save()'s, holds no parameters,
  /// or gives other than a value for each class.
  std::shared_ptr<Model> build(const ModelShape& shape) const override;
};

/// What torch.jit.save() would write of this file's module with other weights: those of
/// named_tensors() of a model built from it, by name. Throws as build() does, and
/// Error(kCheckpoint) where names or shapes differ.
std::string with_weights(const std::filesystem::path& file,
                         const std::map<std::string, at::Tensor>& weights);

}  // namespace brim::nn
