#include "framework/train/input_shape.h"

#include "framework/base/error.h"
#include "framework/data/sources/synthetic.h"
#include "framework/data/sources/synthetic_tokens.h"

namespace brim::train {

std::string_view kind_name(nn::InputKind kind) {
  return kind == nn::InputKind::kImages ? "images" : "token sequences";
}

nn::ModelShape input_shape(const data::Dataset& dataset, const data::DataConfig& data) {
  if (const data::ImageSamples* images = dataset.images()) {
    const data::ImageShape shape = images->shape();
    return {.channels = shape.channels,
            .height = shape.height,
            .width = shape.width,
            .classes = images->classes()};
  }
  if (const data::TokenSamples* tokens = dataset.tokens()) {
    const data::TokenShape shape = tokens->shape();
    return {.length = shape.length,
            .vocabulary = shape.vocabulary,
            .has_documents = shape.has_documents};
  }
  throw Error(Exit::kRecipe,
              "[data] kind = \"{}\": expected a dataset of images or of tokens, which tasks take",
              data.source.selected());
}

std::string text_of(const nn::ModelShape& shape) {
  if (shape.kind() == nn::InputKind::kTokens) {
    return fmt::format("{} tokens of {}", shape.length, shape.vocabulary);
  }
  return fmt::format("{}×{}×{}, {} classes", shape.height, shape.width, shape.channels,
                     shape.classes);
}

void select_synthetic(const nn::ModelShape& shape, int64_t samples, int64_t eval_samples,
                      recipe::Slot<data::SourceConfig>& source) {
  if (shape.kind() == nn::InputKind::kImages) {
    auto& made = source.select_as<data::SyntheticConfig>("synthetic");
    made.samples = samples;
    made.eval_samples = eval_samples;
    made.classes = shape.classes;
    made.height = shape.height;
    made.width = shape.width;
    made.channels = shape.channels;
    return;
  }
  auto& made = source.select_as<data::SyntheticTokensConfig>("synthetic_tokens");
  made.samples = samples;
  made.eval_samples = eval_samples;
  made.vocabulary = shape.vocabulary;
  made.length = shape.length;
  made.documents = shape.has_documents;
}

}  // namespace brim::train
