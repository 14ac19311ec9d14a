#include "models/register.h"

#include "models/mlp/mlp.h"
#include "models/resnet/resnet.h"
#include "models/small_cnn/small_cnn.h"

namespace brim::models {

void register_all() {
  auto& registry = recipe::registry<nn::ModelConfig>();
  registry.add<MlpConfig>("mlp", "fully connected layers with ReLU on flattened images");
  registry.add<SmallCnnConfig>("small_cnn", "three convolutions with batch norm, for small images");
  registry.add<ResNetOf<kResNet18>>("resnet18", "ResNet-18, as in torchvision");
  registry.add<ResNetOf<kResNet34>>("resnet34", "ResNet-34, as in torchvision");
  registry.add<ResNetOf<kResNet50>>("resnet50", "ResNet-50 v1.5, as in torchvision");
  registry.add<ResNetOf<kResNet101>>("resnet101", "ResNet-101 v1.5, as in torchvision");
  registry.add<ResNetOf<kResNet152>>("resnet152", "ResNet-152 v1.5, as in torchvision");
  registry.add<ResNetOf<kWideResNet50>>("wide_resnet50_2", "Wide ResNet-50-2, as in torchvision");
  registry.add<ResNetOf<kWideResNet101>>("wide_resnet101_2",
                                         "Wide ResNet-101-2, as in torchvision");
  registry.add<ResNetOf<kResNeXt50>>("resnext50_32x4d",
                                     "ResNeXt-50, 32 groups of 4, as in torchvision");
  registry.add<ResNetOf<kResNeXt101x8>>("resnext101_32x8d",
                                        "ResNeXt-101, 32 groups of 8, as in torchvision");
  registry.add<ResNetOf<kResNeXt101x4>>("resnext101_64x4d",
                                        "ResNeXt-101, 64 groups of 4, as in torchvision");
}

}  // namespace brim::models
