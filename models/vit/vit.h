// Vision transformers (Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021): patches of
// the image and a class token, encoded by pre-norm transformer blocks. Names, shapes and
// initialisation are torchvision's; timm's names are translated. vit_s16, which torchvision lacks,
// has timm's sizes.
#pragma once

#include "framework/nn/model.h"

namespace brim::models::vit {

struct VitKind {
  std::string_view name;
  int64_t patch;  // pixels on a side
  int64_t width;
  int64_t blocks;
  int64_t heads;
  int64_t hidden() const { return 4 * width; }  // of a block's two fully connected layers
};

inline constexpr VitKind kSmallVit{"small_vit", 4, 64, 4, 4};
inline constexpr VitKind kVitS16{"vit_s16", 16, 384, 12, 6};
inline constexpr VitKind kVitB16{"vit_b16", 16, 768, 12, 12};
inline constexpr VitKind kVitL16{"vit_l16", 16, 1024, 24, 16};

struct VitConfig : nn::ModelConfig {
  double dropout = 0.0;
  double attention_dropout = 0.0;

  void fields(recipe::Fields& f) override;
  /// The positional embedding is for images of this shape, whose sides must be multiples of a
  /// patch's.
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override;
  std::vector<nn::WeightNames> weight_names() const override;

 protected:
  explicit VitConfig(const VitKind& kind) : kind_(kind) {}

 private:
  const VitKind& kind_;
};

template <const VitKind& kKind>
struct VitOf : VitConfig {
  VitOf() : VitConfig(kKind) {}
};

}  // namespace brim::models::vit
