// Models as the trainer sees them: by their registry names, with the shapes that datasets have.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/function.h>

#include "framework/nn/fused/block_product_cpu.h"
#include "framework/nn/model.h"
#include "framework/recipe/read.h"
#include "models/register.h"

namespace brim {
namespace {

using testing::HasSubstr;

recipe::Registry<nn::ModelConfig>& models_by_name() {
  static const bool registered = [] {
    models::register_all();
    return true;
  }();
  (void)registered;
  return recipe::registry<nn::ModelConfig>();
}

std::shared_ptr<nn::Model> build(std::string_view name, const nn::ModelShape& shape) {
  return models_by_name().make(name)->build(shape);
}

int64_t parameter_count(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// As a recipe's [model] section would have it, without the name.
std::shared_ptr<nn::Model> build_with(std::string_view name, const nn::ModelShape& shape,
                                      const std::string& keys) {
  const auto config = models_by_name().make(name);
  recipe::read(recipe::parse(keys, "test"), *config);
  return config->build(shape);
}

std::string refusal(std::string_view name, const nn::ModelShape& shape) {
  try {
    build(name, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    return error.what();
  }
  return "";
}

const nn::ModelShape kDigits{.channels = 1, .height = 8, .width = 8, .classes = 10};
const nn::ModelShape kPhotos{.channels = 3, .height = 32, .width = 32, .classes = 1000};

TEST(Models, AGptsLossOfTokensIsThatOfItsLogits) {
  const nn::ModelShape shape{.length = 6, .vocabulary = 150};
  for (const std::string pad : {"1", "64"}) {
    SCOPED_TRACE(pad);
    at::manual_seed(1);
    const auto model =
        build_with("gpt", shape, "layers = 1\nheads = 2\nwidth = 16\npad_vocabulary_to = " + pad);
    const at::Tensor inputs = at::randint(shape.vocabulary, {3, shape.length}, at::kLong);
    at::Tensor labels = at::randint(shape.vocabulary, {3, shape.length}, at::kLong);
    labels[1][2] = -100;
    const auto gradients = [&](const at::Tensor& loss) {
      model->zero_grad();
      loss.backward();
      std::vector<at::Tensor> all;
      for (const at::Tensor& parameter : model->parameters())
        all.push_back(parameter.grad().clone());
      return all;
    };
    const at::Tensor expected = at::cross_entropy_loss(model->forward(inputs).flatten(0, 1),
                                                       labels.flatten(), {}, at::Reduction::Mean);
    const auto expected_gradients = gradients(expected);
    nn::use_fused(*model, nn::Fused::kAlways);
    const at::Tensor loss = model->token_loss(inputs, labels, -100);
    EXPECT_EQ(loss.grad_fn()->name().find("FusedLinearCrossEntropy") != std::string::npos,
              nn::cpu::multiplies_float_blocks());
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5);
    const auto found = gradients(loss);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i], expected_gradients[i], 1e-3, 1e-6)) << i;
    }
  }
}

TEST(Models, AreRegisteredByName) {
  EXPECT_THAT(models_by_name().names(),
              testing::ElementsAre(
                  "convnext_base", "convnext_small", "convnext_tiny", "gpt", "gpt2", "gpt2_large",
                  "gpt2_medium", "gpt2_xl", "inception_v3", "mlp", "resnet101", "resnet152",
                  "resnet18", "resnet34", "resnet50", "resnext101_32x8d", "resnext101_64x4d",
                  "resnext50_32x4d", "small_cnn", "small_vit", "torchscript", "vit_b16", "vit_l16",
                  "vit_s16", "wide_resnet101_2", "wide_resnet50_2"));
}

// The counts that torchvision's documentation gives.
TEST(Models, ResNetsHaveTheirPublishedNumberOfParameters) {
  EXPECT_EQ(parameter_count(*build("resnet18", kPhotos)), 11'689'512);
  EXPECT_EQ(parameter_count(*build("resnet34", kPhotos)), 21'797'672);
  EXPECT_EQ(parameter_count(*build("resnet50", kPhotos)), 25'557'032);
  EXPECT_EQ(parameter_count(*build("resnet101", kPhotos)), 44'549'160);
  EXPECT_EQ(parameter_count(*build("resnet152", kPhotos)), 60'192'808);
  EXPECT_EQ(parameter_count(*build("wide_resnet50_2", kPhotos)), 68'883'240);
  EXPECT_EQ(parameter_count(*build("wide_resnet101_2", kPhotos)), 126'886'696);
  EXPECT_EQ(parameter_count(*build("resnext50_32x4d", kPhotos)), 25'028'904);
  EXPECT_EQ(parameter_count(*build("resnext101_32x8d", kPhotos)), 88'791'336);
  EXPECT_EQ(parameter_count(*build("resnext101_64x4d", kPhotos)), 83'455'272);
}

TEST(Models, EveryModelTakesDigitsAndPhotographs) {
  for (const std::string_view name : {"mlp", "small_cnn", "resnet18", "resnet50"}) {
    for (const nn::ModelShape& shape : {kDigits, kPhotos}) {
      SCOPED_TRACE(fmt::format("{} on {} pixels", name, shape.height));
      const auto model = build(name, shape);
      const auto images = at::rand({2, shape.channels, shape.height, shape.width});
      const auto logits = model->forward(images);
      EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, shape.classes}));
      logits.sum().backward();
      for (const auto& parameter : model->named_parameters()) {
        EXPECT_TRUE(parameter->grad().defined()) << parameter.key();
      }
      model->eval();
      EXPECT_EQ(model->forward(images).sizes(), logits.sizes());
    }
  }
}

TEST(Models, MlpFollowsItsKeys) {
  const auto model = build_with("mlp", kDigits, "hidden = 32\ndepth = 3");
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : nn::named_tensors(*model)) shapes[name] = tensor.sizes().vec();
  EXPECT_EQ(shapes, (std::map<std::string, std::vector<int64_t>>{{"layers.0.weight", {32, 64}},
                                                                 {"layers.0.bias", {32}},
                                                                 {"layers.1.weight", {32, 32}},
                                                                 {"layers.1.bias", {32}},
                                                                 {"layers.2.weight", {32, 32}},
                                                                 {"layers.2.bias", {32}},
                                                                 {"layers.3.weight", {10, 32}},
                                                                 {"layers.3.bias", {10}}}));
  EXPECT_EQ(parameter_count(*build_with("mlp", kDigits, "depth = 0")), 650);
}

TEST(Models, MlpDropsOnlyWhileTraining) {
  const auto model = build_with("mlp", kDigits, "dropout = 0.5");
  const auto images = at::rand({4, 1, 8, 8});
  EXPECT_FALSE(at::equal(model->forward(images), model->forward(images)));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(images), model->forward(images)));
}

TEST(Models, SmallCnnFollowsItsWidth) {
  const auto narrow = nn::named_tensors(*build_with("small_cnn", kDigits, "width = 4"));
  EXPECT_EQ(narrow.at("conv1.weight").sizes(), (std::vector<int64_t>{4, 1, 3, 3}));
  EXPECT_EQ(narrow.at("fc.weight").sizes(), (std::vector<int64_t>{10, 16}));
}

TEST(Models, ZeroInitialisedResidualsMakeBlocksTheIdentity) {
  const auto weights =
      nn::named_tensors(*build_with("resnet50", kPhotos, "zero_init_residual = true"));
  int64_t last_norms = 0;
  for (const auto& [name, tensor] : weights) {
    if (name.ends_with(".bn3.weight")) {
      EXPECT_EQ(tensor.count_nonzero().item<int64_t>(), 0) << name;
      ++last_norms;
    } else if (name.ends_with("bn1.weight") || name.ends_with("bn2.weight")) {
      EXPECT_EQ(tensor.sum().item<double>(), tensor.numel()) << name;
    }
  }
  EXPECT_EQ(last_norms, 16);
}

TEST(Models, NamedTensorsHoldBuffersToo) {
  const auto model = build("resnet18", kPhotos);
  auto tensors = nn::named_tensors(*model);
  EXPECT_EQ(tensors.size(), 122u);  // 62 parameters, 20 norms with 3 buffers each
  EXPECT_EQ(tensors.at("layer2.0.downsample.1.num_batches_tracked").scalar_type(), at::kLong);
  const at::NoGradGuard no_grad;
  tensors.at("fc.bias").fill_(7);  // the live tensor, not a copy
  EXPECT_EQ(nn::named_tensors(*model).at("fc.bias").sum().item<double>(), 7000);
}

TEST(Models, ChannelsLastStaysSoFromImagesToTheLastStage) {
  const auto model = build("resnet50", kPhotos);
  const auto before = model->parameters();
  nn::use_channels_last(*model);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].is_same(model->parameters()[i]));
  }
  const auto last_conv = nn::named_tensors(*model).at("layer4.2.conv2.weight");
  EXPECT_TRUE(last_conv.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(last_conv.requires_grad());
}

TEST(Models, RefuseShapesTheyCannotTakeInWords) {
  EXPECT_THAT(refusal("small_cnn", {.channels = 1, .height = 3, .width = 8, .classes = 10}),
              HasSubstr("model small_cnn needs images of at least 4x4 pixels; the data has 3x8"));
  EXPECT_THAT(refusal("resnet18", {.channels = 0, .height = 32, .width = 32, .classes = 10}),
              HasSubstr("model resnet18 needs images with at least 1 channel; the data has 0"));
  EXPECT_THAT(refusal("resnet50", {.channels = 3, .height = 0, .width = 32, .classes = 10}),
              HasSubstr("the data has 0x32"));
  EXPECT_THAT(refusal("mlp", {.channels = 1, .height = 8, .width = 8, .classes = 1}),
              HasSubstr("model mlp needs at least 2 classes; the data has 1"));
  EXPECT_THAT(
      refusal("mlp", {.channels = 3, .height = int64_t{1} << 40, .width = 1 << 30, .classes = 2}),
      HasSubstr("model mlp takes at most 2147483647 values per image"));
}

}  // namespace
}  // namespace brim
