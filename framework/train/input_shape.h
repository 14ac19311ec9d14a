// What a dataset feeds a model, of whatever kind it is.
#pragma once

#include <string_view>

#include "framework/data/config.h"
#include "framework/data/dataset.h"
#include "framework/nn/model.h"

namespace brim::train {

/// "images", "token sequences".
std::string_view kind_name(nn::InputKind kind);

/// Throws Error(kRecipe) for a dataset that is neither of images nor of tokens; `data` is its
/// section.
nn::ModelShape input_shape(const data::Dataset& dataset, const data::DataConfig& data);

/// For people: "8×8×1, 10 classes", "128 tokens of 257".
std::string text_of(const nn::ModelShape& shape);

/// `source` becomes synthetic samples that look like this to a model.
void select_synthetic(const nn::ModelShape& shape, int64_t samples, int64_t eval_samples,
                      recipe::Slot<data::SourceConfig>& source);

}  // namespace brim::train
