#include "models/register.h"

#include "framework/nn/torchscript.h"
#include "models/mlp/mlp.h"
#include "models/resnet/resnet.h"
#include "models/small_cnn/small_cnn.h"

namespace brim::models {

void register_all() {
  auto& registry = recipe::registry<nn::ModelConfig>();
  registry.add<MlpConfig>("mlp", "fully connected layers with ReLU on flattened images");
  registry.add<SmallCnnConfig>("small_cnn", "three convolutions with batch norm, for small images");
  registry.add<ResNetOfDepth<18>>("resnet18", "ResNet-18, as in torchvision");
  registry.add<ResNetOfDepth<34>>("resnet34", "ResNet-34, as in torchvision");
  registry.add<ResNetOfDepth<50>>("resnet50", "ResNet-50 v1.5, as in torchvision");
  registry.add<ResNetOfDepth<101>>("resnet101", "ResNet-101 v1.5, as in torchvision");
  registry.add<ResNetOfDepth<152>>("resnet152", "ResNet-152 v1.5, as in torchvision");
  registry.add<nn::TorchScriptConfig>("torchscript", "a model scripted in Python");
}

}  // namespace brim::models
