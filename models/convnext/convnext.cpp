// The order in which modules are made and initialised decides which random numbers each weight
// gets; it follows torchvision/models/convnext.py.
#include "models/convnext/convnext.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/normalization.h>

#include <utility>

#include "framework/nn/block.h"
#include "framework/nn/convolution.h"
#include "framework/nn/fused.h"
#include "framework/nn/fused/gelu.h"
#include "framework/nn/init.h"
#include "framework/nn/layer_norm.h"
#include "framework/nn/linear.h"
#include "framework/nn/sequence.h"
#include "framework/nn/stochastic_depth.h"

namespace brim::models::convnext {
namespace {

using nn::Conv2d;
using nn::LayerNorm;
using nn::Linear;

LayerNorm layer_norm(int64_t channels) {
  return LayerNorm(torch::nn::LayerNormOptions({channels}).eps(1e-6));
}

/// Over the channels of [N, C, H, W].
at::Tensor over_channels(LayerNorm& norm, const at::Tensor& x) {
  return norm->forward(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

/// What a block adds to its input, before it is scaled; numbered as torchvision numbers it, with
/// the permutations and the activation.
class Branch : public torch::nn::Module, public nn::Fusable {
 public:
  explicit Branch(int64_t width) {
    conv_ = register_module(
        "0", Conv2d(torch::nn::Conv2dOptions(width, width, 7).padding(3).groups(width)));
    norm_ = register_module("2", layer_norm(width));
    in_ = register_module("3", Linear(width, 4 * width));
    out_ = register_module("5", Linear(4 * width, width));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = norm_->forward(conv_->forward(x).permute({0, 2, 3, 1}));
    return out_->forward(nn::linear_gelu(in_, y, fused())).permute({0, 3, 1, 2});
  }

 private:
  Conv2d conv_{nullptr};
  LayerNorm norm_{nullptr};
  Linear in_{nullptr}, out_{nullptr};
};

class Block : public nn::Block {
 public:
  Block(int64_t width, double layer_scale, double stochastic_depth)
      : stochastic_depth_(stochastic_depth) {
    scale_ = register_parameter("layer_scale", at::full({width, 1, 1}, layer_scale));
    branch_ = register_module("block", std::make_shared<Branch>(width));
  }

  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor branch = scale_ * branch_->forward(x);
    return nn::stochastic_depth(branch, stochastic_depth_, is_training()).add_(x);
  }

 private:
  double stochastic_depth_;
  at::Tensor scale_;
  std::shared_ptr<Branch> branch_;
};

/// What comes between blocks: a convolution and a norm.
class Step : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

/// Patches of 4x4 pixels.
class Stem : public Step {
 public:
  Stem(int64_t channels, int64_t width) {
    conv_ = register_module("0", Conv2d(torch::nn::Conv2dOptions(channels, width, 4).stride(4)));
    norm_ = register_module("1", layer_norm(width));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return over_channels(norm_, conv_->forward(x));
  }

 private:
  Conv2d conv_{nullptr};
  LayerNorm norm_{nullptr};
};

/// Halves the image and doubles the channels.
class Downsample : public Step {
 public:
  explicit Downsample(int64_t width) {
    norm_ = register_module("0", layer_norm(width));
    conv_ = register_module("1", Conv2d(torch::nn::Conv2dOptions(width, 2 * width, 2).stride(2)));
  }
  at::Tensor forward(const at::Tensor& x) override {
    return conv_->forward(over_channels(norm_, x));
  }

 private:
  LayerNorm norm_{nullptr};
  Conv2d conv_{nullptr};
};

/// Blocks named 0, 1, …
class Stage : public torch::nn::Module {
 public:
  void add(std::shared_ptr<Block> block) {
    blocks_.push_back(register_module(std::to_string(blocks_.size()), std::move(block)));
  }
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

/// Steps and stages, numbered in one row as torchvision has them.
class Features : public torch::nn::Module {
 public:
  /// Stochastic depth grows from 0 at the first block to its full value at the last.
  Features(const ConvNextKind& kind, const ConvNextConfig& config, int64_t channels) {
    int64_t total = 0;
    for (const int64_t blocks : kind.blocks) total += blocks;
    add(std::make_shared<Stem>(channels, kind.width));
    int64_t made = 0;
    for (size_t i = 0; i < kind.blocks.size(); ++i) {
      const int64_t width = kind.width << i;
      if (i > 0) add(std::make_shared<Downsample>(width / 2));
      const auto stage = std::make_shared<Stage>();
      for (int64_t block = 0; block < kind.blocks[i]; ++block, ++made) {
        const double share = static_cast<double>(made) / static_cast<double>(total - 1);
        stage->add(
            std::make_shared<Block>(width, config.layer_scale, config.stochastic_depth * share));
      }
      add(stage);
    }
  }

 private:
  void add(std::shared_ptr<torch::nn::Module> step) {
    register_module(std::to_string(children().size()), std::move(step));
  }
};

/// Norm and last layer, numbered with the flattening between them.
class Classifier : public torch::nn::Module {
 public:
  Classifier(int64_t width, int64_t classes) {
    norm_ = register_module("0", layer_norm(width));
    linear_ = register_module("2", Linear(width, classes));
  }
  at::Tensor forward(const at::Tensor& x) {
    return linear_->forward(over_channels(norm_, x).flatten(1));
  }

 private:
  LayerNorm norm_{nullptr};
  Linear linear_{nullptr};
};

class ConvNext : public nn::Sequence {
 public:
  ConvNext(const ConvNextKind& kind, const ConvNextConfig& config, const nn::ModelShape& shape) {
    const auto features =
        register_module("features", std::make_shared<Features>(kind, config, shape.channels));
    for (const auto& item : features->named_children()) {
      add_parts("features." + item.key(), item.value());
    }
    classifier_ =
        register_module("classifier", std::make_shared<Classifier>(8 * kind.width, shape.classes));
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<Conv2d>()) initialise(conv->weight, conv->bias);
      if (auto* linear = module->as<Linear>()) initialise(linear->weight, linear->bias);
    }
    add_part("head", {"classifier"}, [this](const at::Tensor& x) {
      return classifier_->forward(at::adaptive_avg_pool2d(x, {1, 1}));
    });
  }

 private:
  /// A step, or the blocks of a stage.
  void add_parts(const std::string& name, const std::shared_ptr<torch::nn::Module>& module) {
    if (const auto step = std::dynamic_pointer_cast<Step>(module)) {
      return add_part(name, {name}, [step](const at::Tensor& x) { return step->forward(x); });
    }
    const auto& blocks = dynamic_cast<const Stage&>(*module).blocks();
    for (size_t i = 0; i < blocks.size(); ++i) {
      add_part(name + "." + std::to_string(i), blocks[i]);
    }
  }
  static void initialise(const at::Tensor& weight, const at::Tensor& bias) {
    nn::truncated_normal_(weight, 0.02);
    torch::nn::init::zeros_(bias);
  }
  std::shared_ptr<Classifier> classifier_;
};

/// Torchvision counts stem, stages and downsamplings in one row; timm counts stages.
std::vector<nn::NameRule> timm_rules() {
  std::vector<nn::NameRule> rules = {{"features.0.*", "stem.*"},
                                     {"classifier.0.*", "head.norm.*"},
                                     {"classifier.2.*", "head.fc.*"}};
  for (int64_t stage = 0; stage < 4; ++stage) {
    const std::string ours = fmt::format("features.{}.#.", 2 * stage + 1);
    const std::string theirs = fmt::format("stages.{}.blocks.#.", stage);
    rules.insert(rules.end(), {{ours + "layer_scale", theirs + "gamma", true},
                               {ours + "block.0.*", theirs + "conv_dw.*"},
                               {ours + "block.2.*", theirs + "norm.*"},
                               {ours + "block.3.*", theirs + "mlp.fc1.*"},
                               {ours + "block.5.*", theirs + "mlp.fc2.*"},
                               {fmt::format("features.{}.*", 2 * stage),
                                fmt::format("stages.{}.downsample.*", stage)}});
  }
  return rules;
}

}  // namespace

void ConvNextConfig::fields(recipe::Fields& f) {
  f.value(
      "stochastic_depth", stochastic_depth,
      "probability that a sample skips the last block's branch; it grows linearly from 0 at the "
      "first block",
      recipe::between_open_high(0, 1));
  f.value("layer_scale", layer_scale, "initial scale of every block's branch", recipe::at_least(0));
}

std::shared_ptr<nn::Model> ConvNextConfig::build(const nn::ModelShape& shape) const {
  nn::require_shape(kind_.name, shape, 32);
  return std::make_shared<ConvNext>(kind_, *this, shape);
}

std::vector<nn::WeightNames> ConvNextConfig::weight_names() const {
  return {{"torchvision", {}}, {"timm", timm_rules()}};
}

}  // namespace brim::models::convnext
