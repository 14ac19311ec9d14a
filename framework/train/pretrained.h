// Weights to start from: a safetensors file with the model's names, as torchvision's models have
// them when they are saved by the safetensors package, or a checkpoint's model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/nn/model.h"

namespace brim::train {

/// Copies a file's weights into a model on the CPU. Where only the number of classes differs, the
/// last layer keeps its fresh values, and that is said. Other differences are Error(kCheckpoint)
/// that lists them all by name and shape; with `strict` false they are only said, and what fits is
/// taken. PyTorch's pickled files are refused with the line of Python that converts them: they can
/// run programs.
void load_pretrained(nn::Model& model, const std::filesystem::path& path, bool strict);

/// From now on parameters whose names match one of the patterns ('*' and '?' match dots too, as in
/// "layer1.*") aren't trained, and modules of nothing but such parameters stay in evaluation mode,
/// so that their running statistics stay as they are. Throws Error(kRecipe) where a pattern matches
/// none, or nothing is left to train.
void freeze(nn::Model& model, const std::vector<std::string>& patterns);

}  // namespace brim::train
