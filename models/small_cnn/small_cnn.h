// A small convolutional network for small images (8x8 digits, 32x32 photographs): three
// convolution-batch norm-ReLU stages, global average pooling, a linear classifier.
#pragma once

#include "framework/nn/model.h"

namespace brim::models::small_cnn {

struct SmallCnnConfig : nn::ModelConfig {
  int64_t width = 32;

  void fields(recipe::Fields& f) override;
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;
};

}  // namespace brim::models::small_cnn
