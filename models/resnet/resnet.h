// ResNet-18, -34, -50, -101 and -152 (He et al., "Deep residual learning for image recognition",
// CVPR 2016), version 1.5: bottlenecks stride in their 3x3 convolution. Names, shapes and
// initialisation are torchvision's, so its weights load as they are and equal seeds give equal
// weights, to the bit.
#pragma once

#include "framework/nn/model.h"

namespace brim::models {

/// Base of the five: one config struct per depth, because the registry makes them by type.
struct ResNetConfig : nn::ModelConfig {
  bool zero_init_residual = false;

  void fields(recipe::Fields& f) override;
  /// Takes any image size; below 33 pixels the last stage works on one pixel, and training needs
  /// batches of two or more.
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;

 protected:
  explicit ResNetConfig(int64_t layers) : depth_(layers) {}

 private:
  int64_t depth_;
};

template <int64_t kDepth>
struct ResNetOfDepth : ResNetConfig {
  ResNetOfDepth() : ResNetConfig(kDepth) {}
};

}  // namespace brim::models
