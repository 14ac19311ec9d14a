// A model's weights under another package's names, by the rules of its folder in models/.
#pragma once

#include <string>
#include <vector>

#include "framework/checkpoint/tensors.h"
#include "framework/nn/weight_names.h"

namespace brim::train {

/// Gives a file's tensors our names and shapes where it has another package's names: those of
/// `packages` that fit more of our tensors than any other, the file's own included. Returns that
/// package, "" where the names stay. `ours` are the model's. Throws Error(kCheckpoint) where two of
/// the file's tensors would have one name; `what` is the file.
std::string name_as_ours(checkpoint::TensorMap& theirs, const checkpoint::TensorMap& ours,
                         const std::vector<nn::WeightNames>& packages, const std::string& what);

/// Our tensors with a package's names and shapes.
checkpoint::TensorMap name_as_theirs(const checkpoint::TensorMap& ours,
                                     const nn::WeightNames& package);

}  // namespace brim::train
