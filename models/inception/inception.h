// Inception v3 (Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR
// 2016), with its auxiliary classifier. Names, shapes and initialisation are torchvision's and
// timm's.
#pragma once

#include "framework/nn/model.h"

namespace brim::models::inception {

struct InceptionConfig : nn::ModelConfig {
  bool auxiliary = true;
  double auxiliary_weight = 0.4;
  double dropout = 0.5;

  void fields(recipe::Fields& f) override;
  /// Images of at least 299 pixels a side, for which it is made; of 75 without the auxiliary head.
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;
  std::vector<nn::WeightNames> weight_names() const override;
};

}  // namespace brim::models::inception
