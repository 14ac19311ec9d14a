// The order in which modules are made and registered decides which random numbers each weight
// gets; it follows torchvision/models/resnet.py.
#include "models/resnet/resnet.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <torch/nn/init.h>

#include "framework/nn/batch_norm.h"
#include "framework/nn/block.h"
#include "framework/nn/convolution.h"
#include "framework/nn/linear.h"
#include "framework/nn/max_pool.h"
#include "framework/nn/sequence.h"

namespace brim::models::resnet {
namespace {

using nn::BatchNorm2d;
using nn::Conv2d;

Conv2d convolution(int64_t inputs, int64_t outputs, int64_t kernel, int64_t stride = 1,
                   int64_t groups = 1) {
  return Conv2d(torch::nn::Conv2dOptions(inputs, outputs, kernel)
                    .stride(stride)
                    .padding(kernel / 2)
                    .groups(groups)
                    .bias(false));
}

/// What a block adds to its residual where that has another shape: a strided 1x1 projection.
class Downsample : public torch::nn::Module {
 public:
  Downsample(int64_t inputs, int64_t outputs, int64_t stride) {
    conv_ = register_module("0", convolution(inputs, outputs, 1, stride));
    bn_ = register_module("1", BatchNorm2d(outputs));
  }
  at::Tensor forward(const at::Tensor& x) { return bn_->forward(conv_->forward(x)); }

 private:
  Conv2d conv_{nullptr};
  BatchNorm2d bn_{nullptr};
};

/// A residual block; `downsample` is null where the input is added as it is.
class Block : public nn::Block {
 public:
  /// The norm that ends the residual branch.
  virtual BatchNorm2d& last_norm() = 0;

 protected:
  void add_downsample(std::shared_ptr<Downsample> downsample) {
    if (downsample != nullptr) downsample_ = register_module("downsample", std::move(downsample));
  }
  at::Tensor shortcut(const at::Tensor& x) { return downsample_ ? downsample_->forward(x) : x; }

 private:
  std::shared_ptr<Downsample> downsample_;
};

class BasicBlock : public Block {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlock(const ResNetKind& /*kind*/, int64_t inputs, int64_t planes, int64_t stride,
             std::shared_ptr<Downsample> downsample) {
    conv1_ = register_module("conv1", convolution(inputs, planes, 3, stride));
    bn1_ = register_module("bn1", BatchNorm2d(planes));
    conv2_ = register_module("conv2", convolution(planes, planes, 3));
    bn2_ = register_module("bn2", BatchNorm2d(planes));
    add_downsample(std::move(downsample));
  }

  at::Tensor forward(const at::Tensor& x) override {
    const auto [first, residual] = conv1_->forward_branch(x);
    const at::Tensor out = conv2_->forward_after(bn1_, first);
    return bn2_->forward_add_relu(out, shortcut(residual));
  }
  BatchNorm2d& last_norm() override { return bn2_; }

 private:
  Conv2d conv1_{nullptr}, conv2_{nullptr};
  BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
};

class Bottleneck : public Block {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(const ResNetKind& kind, int64_t inputs, int64_t planes, int64_t stride,
             std::shared_ptr<Downsample> downsample) {
    const int64_t width = planes * kind.group_width / 64 * kind.groups;
    conv1_ = register_module("conv1", convolution(inputs, width, 1));
    bn1_ = register_module("bn1", BatchNorm2d(width));
    conv2_ = register_module("conv2", convolution(width, width, 3, stride, kind.groups));
    bn2_ = register_module("bn2", BatchNorm2d(width));
    conv3_ = register_module("conv3", convolution(width, planes * kExpansion, 1));
    bn3_ = register_module("bn3", BatchNorm2d(planes * kExpansion));
    add_downsample(std::move(downsample));
  }

  at::Tensor forward(const at::Tensor& x) override {
    const auto [first, residual] = conv1_->forward_branch(x);
    const at::Tensor out = conv3_->forward_after(bn2_, conv2_->forward_after(bn1_, first));
    return bn3_->forward_add_relu(out, shortcut(residual));
  }
  BatchNorm2d& last_norm() override { return bn3_; }

 private:
  Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};

/// Blocks at one resolution, named 0, 1, …; the first may stride and widen.
class Stage : public torch::nn::Module {
 public:
  template <class BlockType>
  static std::shared_ptr<Stage> make(const ResNetKind& kind, int64_t inputs, int64_t planes,
                                     int64_t count, int64_t stride) {
    auto stage = std::make_shared<Stage>();
    const int64_t outputs = planes * BlockType::kExpansion;
    std::shared_ptr<Downsample> downsample;
    if (stride != 1 || inputs != outputs) {
      downsample = std::make_shared<Downsample>(inputs, outputs, stride);
    }
    stage->add(std::make_shared<BlockType>(kind, inputs, planes, stride, std::move(downsample)));
    for (int64_t i = 1; i < count; ++i) {
      stage->add(std::make_shared<BlockType>(kind, outputs, planes, 1, nullptr));
    }
    return stage;
  }

  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }

 private:
  void add(std::shared_ptr<Block> block) {
    register_module(std::to_string(blocks_.size()), block);
    blocks_.push_back(std::move(block));
  }
  std::vector<std::shared_ptr<Block>> blocks_;
};

class ResNet : public nn::Sequence {
 public:
  ResNet(const ResNetKind& kind, int64_t channels, int64_t classes, bool zero_init_residual) {
    conv1_ = register_module(
        "conv1",
        Conv2d(torch::nn::Conv2dOptions(channels, kind.width, 7).stride(2).padding(3).bias(false)));
    bn1_ = register_module("bn1", BatchNorm2d(kind.width));
    maxpool_ = register_module(
        "maxpool", nn::MaxPool2d(nn::PoolWindow{.kernel = 3, .stride = 2, .padding = 1}));
    add_part("stem", {"conv1", "bn1"}, [this](const at::Tensor& images) {
      return maxpool_->forward(bn1_->forward_relu(conv1_->forward(images)));
    });
    int64_t inputs = kind.width;
    for (size_t i = 0; i < kind.blocks.size(); ++i) {
      const int64_t planes = kind.width << i;
      const int64_t stride = i == 0 ? 1 : 2;
      const auto make = kind.bottleneck ? &Stage::make<Bottleneck> : &Stage::make<BasicBlock>;
      const std::string name = "layer" + std::to_string(i + 1);
      const auto stage = register_module(name, make(kind, inputs, planes, kind.blocks[i], stride));
      for (size_t j = 0; j < stage->blocks().size(); ++j) {
        add_part(name + "." + std::to_string(j), stage->blocks()[j]);
      }
      inputs = planes * (kind.bottleneck ? Bottleneck::kExpansion : BasicBlock::kExpansion);
    }
    fc_ = register_module("fc", nn::Linear(inputs, classes));
    add_part("head", {"fc"}, [this](const at::Tensor& x) {
      return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
    });
    initialise(zero_init_residual);
  }

 private:
  // Batch norms start at weight 1 and bias 0 already, and fc keeps LibTorch's default.
  void initialise(bool zero_init_residual) {
    const at::NoGradGuard no_grad;
    for (const auto& module : modules(/*include_self=*/false)) {
      if (const auto* conv = module->as<Conv2d>()) {
        torch::nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
      } else if (auto* block = dynamic_cast<Block*>(module.get()); block && zero_init_residual) {
        block->last_norm()->weight.zero_();
      }
    }
  }

  Conv2d conv1_{nullptr};
  BatchNorm2d bn1_{nullptr};
  nn::MaxPool2d maxpool_{nullptr};
  nn::Linear fc_{nullptr};
};

}  // namespace

void ResNetConfig::fields(recipe::Fields& f) {
  f.value("zero_init_residual", zero_init_residual,
          "start each residual branch at zero: its last batch norm has weight 0");
}

std::shared_ptr<nn::Model> ResNetConfig::build(const nn::ModelShape& shape) const {
  nn::require_shape(kind_.name, shape, 1);
  return std::make_shared<ResNet>(kind_, shape.channels, shape.classes, zero_init_residual);
}

std::vector<nn::WeightNames> ResNetConfig::weight_names() const {
  return {{"torchvision", {}}, {"timm", {}}};
}

}  // namespace brim::models::resnet
