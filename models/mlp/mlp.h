// A multi-layer perceptron: images are flattened, then hidden layers with ReLU, then the
// classifier.
#pragma once

#include "framework/nn/model.h"

namespace brim::models::mlp {

struct MlpConfig : nn::ModelConfig {
  int64_t hidden = 128;
  int64_t depth = 2;
  double dropout = 0.0;

  void fields(recipe::Fields& f) override;
  /// Layers are named layers.0 … layers.<depth>; the last is the classifier.
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;
};

}  // namespace brim::models::mlp
