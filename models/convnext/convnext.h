// ConvNeXt (Liu et al., "A ConvNet for the 2020s", CVPR 2022). Names, shapes and initialisation are
// torchvision's; timm's names are translated.
#pragma once

#include <array>

#include "framework/nn/model.h"

namespace brim::models::convnext {

struct ConvNextKind {
  std::string_view name;
  std::array<int64_t, 4> blocks;  // of each stage
  int64_t width;                  // channels of the first stage; each next one has twice as many
  double stochastic_depth;        // of the last block, in torchvision's recipe
};

inline constexpr ConvNextKind kConvNextTiny{"convnext_tiny", {3, 3, 9, 3}, 96, 0.1};
inline constexpr ConvNextKind kConvNextSmall{"convnext_small", {3, 3, 27, 3}, 96, 0.4};
inline constexpr ConvNextKind kConvNextBase{"convnext_base", {3, 3, 27, 3}, 128, 0.5};

struct ConvNextConfig : nn::ModelConfig {
  double stochastic_depth;
  double layer_scale = 1e-6;

  void fields(recipe::Fields& f) override;
  /// Images of at least 32 pixels a side, of which the last stage sees a 32nd.
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;
  std::vector<nn::WeightNames> weight_names() const override;

 protected:
  explicit ConvNextConfig(const ConvNextKind& kind)
      : stochastic_depth(kind.stochastic_depth), kind_(kind) {}

 private:
  const ConvNextKind& kind_;
};

template <const ConvNextKind& kKind>
struct ConvNextOf : ConvNextConfig {
  ConvNextOf() : ConvNextConfig(kKind) {}
};

}  // namespace brim::models::convnext
