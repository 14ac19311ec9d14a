// ResNet-18 with a quarter of its channels, 0.7 million parameters: what tests of ranks need of it,
// in a fraction of the time.
#include "framework/recipe/library.h"
#include "models/resnet/resnet.h"

namespace {

constexpr brim::models::resnet::ResNetKind kNarrow{
    .name = "narrow_resnet18", .bottleneck = false, .blocks = {2, 2, 2, 2}, .width = 16};

}  // namespace

BRIM_LIBRARY {
  brim::recipe::registry<brim::nn::ModelConfig>().add<brim::models::resnet::ResNetOf<kNarrow>>(
      "narrow_resnet18", "a quarter of ResNet-18's channels");
}
