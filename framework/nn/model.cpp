#include "framework/nn/model.h"

#include "framework/base/error.h"

namespace brim::nn {

void Model::to(c10::Device device, c10::ScalarType dtype, bool non_blocking) {
  for (auto& [name, tensor] : named_tensors(*this)) {
    const bool converts = tensor.is_floating_point() || tensor.is_complex();
    tensor.set_data(tensor.to(device, converts ? dtype : tensor.scalar_type(), non_blocking));
  }
}

void Model::to(c10::ScalarType dtype, bool non_blocking) {
  const auto weights = parameters();
  if (!weights.empty()) to(weights.front().device(), dtype, non_blocking);
}

void require_shape(std::string_view model, const ModelShape& shape, int64_t smallest_side) {
  if (shape.channels < 1) {
    throw Error(Exit::kRecipe, "model {} needs images with at least 1 channel; the data has {}",
                model, shape.channels);
  }
  if (shape.height < smallest_side || shape.width < smallest_side) {
    throw Error(Exit::kRecipe,
                "model {} needs images of at least {}x{} pixels; the data has {}x{}. Make the "
                "images larger or choose another model",
                model, smallest_side, smallest_side, shape.height, shape.width);
  }
  if (shape.classes < 2) {
    throw Error(Exit::kRecipe, "model {} needs at least 2 classes; the data has {}", model,
                shape.classes);
  }
}

std::map<std::string, at::Tensor> named_tensors(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

void use_channels_last(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace brim::nn
