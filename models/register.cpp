#include "models/register.h"

#include "framework/nn/torchscript.h"
#include "models/convnext/convnext.h"
#include "models/gpt2/gpt2.h"
#include "models/inception/inception.h"
#include "models/mlp/mlp.h"
#include "models/resnet/resnet.h"
#include "models/small_cnn/small_cnn.h"
#include "models/vit/vit.h"

namespace brim::models {

void register_all() {
  auto& registry = recipe::registry<nn::ModelConfig>();
  registry.add<mlp::MlpConfig>("mlp", "fully connected layers with ReLU on flattened images");
  registry.add<gpt2::SmallGptConfig>("gpt", "GPT-2's architecture in any size");
  registry.add<gpt2::Gpt2OfSize<12, 12, 768>>("gpt2",
                                              "GPT-2, 124 M parameters, as in transformers");
  registry.add<gpt2::Gpt2OfSize<24, 16, 1024>>("gpt2_medium",
                                               "GPT-2, 355 M parameters, as in transformers");
  registry.add<gpt2::Gpt2OfSize<36, 20, 1280>>("gpt2_large",
                                               "GPT-2, 774 M parameters, as in transformers");
  registry.add<gpt2::Gpt2OfSize<48, 25, 1600>>("gpt2_xl",
                                               "GPT-2, 1.5 G parameters, as in transformers");
  registry.add<small_cnn::SmallCnnConfig>("small_cnn",
                                          "three convolutions with batch norm, for small images");
  registry.add<resnet::ResNetOf<resnet::kResNet18>>("resnet18", "ResNet-18, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNet34>>("resnet34", "ResNet-34, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNet50>>("resnet50",
                                                    "ResNet-50 v1.5, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNet101>>("resnet101",
                                                     "ResNet-101 v1.5, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNet152>>("resnet152",
                                                     "ResNet-152 v1.5, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kWideResNet50>>("wide_resnet50_2",
                                                        "Wide ResNet-50-2, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kWideResNet101>>("wide_resnet101_2",
                                                         "Wide ResNet-101-2, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNeXt50>>(
      "resnext50_32x4d", "ResNeXt-50, 32 groups of 4, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNeXt101x8>>(
      "resnext101_32x8d", "ResNeXt-101, 32 groups of 8, as in torchvision");
  registry.add<resnet::ResNetOf<resnet::kResNeXt101x4>>(
      "resnext101_64x4d", "ResNeXt-101, 64 groups of 4, as in torchvision");
  registry.add<vit::VitOf<vit::kSmallVit>>(
      "small_vit", "vision transformer of 4 blocks on patches of 4x4, for small images");
  registry.add<vit::VitOf<vit::kVitS16>>(
      "vit_s16", "ViT-S/16, of timm's shape, initialised as torchvision's ViT");
  registry.add<vit::VitOf<vit::kVitB16>>("vit_b16", "ViT-B/16, as in torchvision");
  registry.add<vit::VitOf<vit::kVitL16>>("vit_l16", "ViT-L/16, as in torchvision");
  registry.add<convnext::ConvNextOf<convnext::kConvNextTiny>>("convnext_tiny",
                                                              "ConvNeXt-T, as in torchvision");
  registry.add<convnext::ConvNextOf<convnext::kConvNextSmall>>("convnext_small",
                                                               "ConvNeXt-S, as in torchvision");
  registry.add<convnext::ConvNextOf<convnext::kConvNextBase>>("convnext_base",
                                                              "ConvNeXt-B, as in torchvision");
  registry.add<inception::InceptionConfig>(
      "inception_v3", "Inception v3 with its auxiliary head, as in torchvision");
  registry.add<nn::TorchScriptConfig>("torchscript", "a model scripted in Python");
}

}  // namespace brim::models
