// Weights to start from: a safetensors file, or several with an index, with the names that
// torchvision, timm or transformers give the model's weights, or a checkpoint's model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_files.h"
#include "framework/nn/model.h"

namespace brim::train {

/// Copies the weights of a file, or of the files that an index lists, into a model on the CPU;
/// their names are the model's or those of one of `packages`. Where only the number of classes
/// differs, the last layer (and that of an auxiliary head) keeps its fresh values, and that is
/// said. Other differences are Error(kCheckpoint) that lists them all by name and shape; with
/// `strict` false they are only said, and what fits is taken. PyTorch's pickled files are refused
/// with the line of Python that converts them: they can run programs. Takes little more memory than
/// the model's: the files are mapped, and pages are let go once they are copied. Returns the files,
/// which a model whose values are deferred (nn/deferred_init.h) is still to be copied from.
std::shared_ptr<const checkpoint::WeightFiles> load_pretrained(
    nn::Model& model, const std::vector<nn::WeightNames>& packages,
    const std::filesystem::path& path, bool strict);

/// From now on parameters whose names match one of the patterns ('*' and '?' match dots too, as in
/// "layer1.*") aren't trained, and modules of nothing but such parameters stay in evaluation mode,
/// so that their running statistics stay as they are. Throws Error(kRecipe) where a pattern matches
/// none, or nothing is left to train.
void freeze(nn::Model& model, const std::vector<std::string>& patterns);

}  // namespace brim::train
