// ResNet-18, -34, -50, -101 and -152 (He et al., "Deep residual learning for image recognition",
// CVPR 2016), version 1.5: bottlenecks stride in their 3x3 convolution; with wider bottlenecks
// (Zagoruyko & Komodakis, "Wide residual networks", BMVC 2016) or grouped ones (Xie et al.,
// "Aggregated residual transformations for deep neural networks", CVPR 2017). Names, shapes and
// initialisation are torchvision's, so its weights load as they are and equal seeds give equal
// weights, to the bit.
#pragma once

#include <array>

#include "framework/nn/model.h"

namespace brim::models::resnet {

/// One of the family, under torchvision's name.
struct ResNetKind {
  std::string_view name;
  bool bottleneck;
  std::array<int64_t, 4> blocks;  // of each stage
  int64_t groups = 1;             // of a bottleneck's 3x3 convolution
  int64_t group_width = 64;       // channels of each group in the first stage
  int64_t width = 64;             // channels of the stem; a stage has twice the one's before it
};

inline constexpr ResNetKind kResNet18{"resnet18", false, {2, 2, 2, 2}};
inline constexpr ResNetKind kResNet34{"resnet34", false, {3, 4, 6, 3}};
inline constexpr ResNetKind kResNet50{"resnet50", true, {3, 4, 6, 3}};
inline constexpr ResNetKind kResNet101{"resnet101", true, {3, 4, 23, 3}};
inline constexpr ResNetKind kResNet152{"resnet152", true, {3, 8, 36, 3}};
inline constexpr ResNetKind kWideResNet50{"wide_resnet50_2", true, {3, 4, 6, 3}, 1, 128};
inline constexpr ResNetKind kWideResNet101{"wide_resnet101_2", true, {3, 4, 23, 3}, 1, 128};
inline constexpr ResNetKind kResNeXt50{"resnext50_32x4d", true, {3, 4, 6, 3}, 32, 4};
inline constexpr ResNetKind kResNeXt101x8{"resnext101_32x8d", true, {3, 4, 23, 3}, 32, 8};
inline constexpr ResNetKind kResNeXt101x4{"resnext101_64x4d", true, {3, 4, 23, 3}, 64, 4};

/// Base of all: one config struct per kind, because the registry makes them by type.
struct ResNetConfig : nn::ModelConfig {
  bool zero_init_residual = false;

  void fields(recipe::Fields& f) override;
  /// Takes any image size; below 33 pixels the last stage works on one pixel, and training needs
  /// batches of two or more.
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;
  std::vector<nn::WeightNames> weight_names() const override;

 protected:
  explicit ResNetConfig(const ResNetKind& kind) : kind_(kind) {}

 private:
  const ResNetKind& kind_;
};

template <const ResNetKind& kKind>
struct ResNetOf : ResNetConfig {
  ResNetOf() : ResNetConfig(kKind) {}
};

}  // namespace brim::models::resnet
