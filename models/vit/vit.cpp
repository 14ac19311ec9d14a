// The order in which modules are made and initialised decides which random numbers each weight
// gets; it follows torchvision/models/vision_transformer.py.
#include "models/vit/vit.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/nn/block.h"
#include "framework/nn/convolution.h"
#include "framework/nn/fused.h"
#include "framework/nn/fused/attention.h"
#include "framework/nn/fused/gelu.h"
#include "framework/nn/init.h"
#include "framework/nn/layer_norm.h"
#include "framework/nn/linear.h"
#include "framework/nn/sequence.h"

namespace brim::models::vit {
namespace {

using nn::LayerNorm;
using nn::Linear;

struct Dropouts {
  double features = 0.0;
  double attention = 0.0;
};

LayerNorm layer_norm(int64_t width) {
  return LayerNorm(torch::nn::LayerNormOptions({width}).eps(1e-6));
}

/// Self-attention: [N, L, width] to the same shape.
class Attention : public torch::nn::Module, public nn::Fusable {
 public:
  Attention(int64_t width, int64_t heads, double dropout) : heads_(heads), dropout_(dropout) {
    in_weight_ = register_parameter("in_proj_weight", at::empty({3 * width, width}));
    in_bias_ = register_parameter("in_proj_bias", at::zeros({3 * width}));
    out_ = register_module("out_proj", Linear(width, width));
    torch::nn::init::xavier_uniform_(in_weight_);
    torch::nn::init::zeros_(out_->bias);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor qkv = nn::linear(x, in_weight_, in_bias_, fused(), is_training());
    const nn::SelfAttention attention = {.heads = heads_,
                                         .dropout = is_training() ? dropout_ : 0.0};
    return out_->forward(nn::self_attention(qkv, attention, fused(), is_training()));
  }

 private:
  int64_t heads_;
  double dropout_;
  at::Tensor in_weight_, in_bias_;
  Linear out_{nullptr};
};

/// Two fully connected layers; named 0 and 3, as what lies between has no weights.
class FeedForward : public torch::nn::Module, public nn::Fusable {
 public:
  FeedForward(int64_t width, int64_t hidden, double dropout) : dropout_(dropout) {
    in_ = register_module("0", Linear(width, hidden));
    out_ = register_module("3", Linear(hidden, width));
    for (const Linear& layer : {in_, out_}) {
      torch::nn::init::xavier_uniform_(layer->weight);
      torch::nn::init::normal_(layer->bias, 0.0, 1e-6);
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden =
        at::dropout(nn::linear_gelu(in_, x, fused()), dropout_, is_training());
    return at::dropout(out_->forward(hidden), dropout_, is_training());
  }

 private:
  double dropout_;
  Linear in_{nullptr}, out_{nullptr};
};

class EncoderBlock : public nn::Block {
 public:
  EncoderBlock(const VitKind& kind, const Dropouts& dropouts) : dropout_(dropouts.features) {
    ln_1_ = register_module("ln_1", layer_norm(kind.width));
    attention_ = register_module(
        "self_attention", std::make_shared<Attention>(kind.width, kind.heads, dropouts.attention));
    ln_2_ = register_module("ln_2", layer_norm(kind.width));
    mlp_ = register_module(
        "mlp", std::make_shared<FeedForward>(kind.width, kind.hidden(), dropouts.features));
  }

  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor seen = attention_->forward(ln_1_->forward(x));
    const auto [sum, norm] = ln_2_->forward_add(x, at::dropout(seen, dropout_, is_training()));
    return sum + mlp_->forward(norm);
  }

 private:
  double dropout_;
  LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<FeedForward> mlp_;
};

/// Blocks named encoder_layer_0, encoder_layer_1, …
class Blocks : public torch::nn::Module {
 public:
  Blocks(const VitKind& kind, const Dropouts& dropouts) {
    for (int64_t i = 0; i < kind.blocks; ++i) {
      blocks_.push_back(register_module("encoder_layer_" + std::to_string(i),
                                        std::make_shared<EncoderBlock>(kind, dropouts)));
    }
  }
  const std::vector<std::shared_ptr<EncoderBlock>>& all() const { return blocks_; }

 private:
  std::vector<std::shared_ptr<EncoderBlock>> blocks_;
};

/// What comes before the blocks and after them, each [N, L, width] to the same shape.
class Encoder : public torch::nn::Module {
 public:
  Encoder(const VitKind& kind, int64_t length, const Dropouts& dropouts)
      : dropout_(dropouts.features) {
    positions_ =
        register_parameter("pos_embedding", at::empty({1, length, kind.width}).normal_(0.0, 0.02));
    blocks_ = register_module("layers", std::make_shared<Blocks>(kind, dropouts));
    ln_ = register_module("ln", layer_norm(kind.width));
  }
  at::Tensor with_positions(const at::Tensor& x) {
    return at::dropout(x + positions_, dropout_, is_training());
  }
  const Blocks& blocks() const { return *blocks_; }
  at::Tensor norm(const at::Tensor& x) { return ln_->forward(x); }

 private:
  double dropout_;
  at::Tensor positions_;
  std::shared_ptr<Blocks> blocks_;
  LayerNorm ln_{nullptr};
};

class Heads : public torch::nn::Module {
 public:
  Heads(int64_t width, int64_t classes) { head_ = register_module("head", Linear(width, classes)); }
  Linear& head() { return head_; }

 private:
  Linear head_{nullptr};
};

/// Positions [1, 1 + side², width] of square images for a grid of patches of other sides, by cubic
/// interpolation as torchvision's interpolate_embeddings() does it; the class token's stays.
at::Tensor resize_positions(const at::Tensor& stored, int64_t side, int64_t rows, int64_t columns) {
  const at::Tensor wide = stored.to(at::kFloat);
  const at::Tensor grid =
      wide.slice(1, 1).transpose(1, 2).reshape({1, wide.size(2), side, side}).contiguous();
  const at::Tensor resized = at::upsample_bicubic2d(grid, {rows, columns}, /*align_corners=*/true);
  return at::cat({wide.slice(1, 0, 1), resized.flatten(2).transpose(1, 2)}, 1);
}

class VisionTransformer : public nn::Sequence {
 public:
  VisionTransformer(const VitKind& kind, const nn::ModelShape& shape, const Dropouts& dropouts)
      : rows_(shape.height / kind.patch), columns_(shape.width / kind.patch) {
    const int64_t patches = rows_ * columns_;
    class_token_ = register_parameter("class_token", at::zeros({1, 1, kind.width}));
    patches_ = register_module(
        "conv_proj",
        nn::Conv2d(
            torch::nn::Conv2dOptions(shape.channels, kind.width, kind.patch).stride(kind.patch)));
    encoder_ = register_module("encoder", std::make_shared<Encoder>(kind, patches + 1, dropouts));
    heads_ = register_module("heads", std::make_shared<Heads>(kind.width, shape.classes));
    const auto inputs = static_cast<double>(shape.channels * kind.patch * kind.patch);
    nn::truncated_normal_(patches_->weight, std::sqrt(1.0 / inputs));
    torch::nn::init::zeros_(patches_->bias);
    torch::nn::init::zeros_(heads_->head()->weight);
    torch::nn::init::zeros_(heads_->head()->bias);
    add_part("stem", {"class_token", "conv_proj", "encoder.pos_embedding"},
             [this](const at::Tensor& images) { return embed(images); });
    for (size_t i = 0; i < encoder_->blocks().all().size(); ++i) {
      add_part("encoder.layers.encoder_layer_" + std::to_string(i), encoder_->blocks().all()[i]);
    }
    add_part("head", {"encoder.ln", "heads"}, [this](const at::Tensor& x) {
      return heads_->head()->forward(encoder_->norm(x).select(1, 0));
    });
  }

  /// Weights of another image size: their positions are resized.
  void adapt_weights(std::map<std::string, at::Tensor>& theirs) const override {
    const auto found = theirs.find("encoder.pos_embedding");
    if (found == theirs.end() || found->second.dim() != 3) return;
    const int64_t patches = found->second.size(1) - 1;
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(std::max<int64_t>(patches, 0))));
    if (side < 1 || side * side != patches || patches == rows_ * columns_) return;
    found->second = resize_positions(found->second, side, rows_, columns_);
    log::info("model.pretrained: positions of {}x{} patches are resized to {}x{}", side, side,
              rows_, columns_);
  }

 private:
  /// Images to [N, 1 + patches, width].
  at::Tensor embed(const at::Tensor& images) {
    const at::Tensor patches = patches_->forward(images).flatten(2).transpose(1, 2);
    const at::Tensor token = class_token_.expand({images.size(0), 1, patches.size(2)});
    return encoder_->with_positions(at::cat({token, patches}, 1));
  }

  int64_t rows_, columns_;  // of patches
  at::Tensor class_token_;
  nn::Conv2d patches_{nullptr};
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<Heads> heads_;
};

std::vector<nn::NameRule> timm_rules() {
  const std::string ours = "encoder.layers.encoder_layer_#.", theirs = "blocks.#.";
  return {{"class_token", "cls_token"},
          {"encoder.pos_embedding", "pos_embed"},
          {"conv_proj.*", "patch_embed.proj.*"},
          {ours + "ln_1.*", theirs + "norm1.*"},
          {ours + "self_attention.in_proj_weight", theirs + "attn.qkv.weight"},
          {ours + "self_attention.in_proj_bias", theirs + "attn.qkv.bias"},
          {ours + "self_attention.out_proj.*", theirs + "attn.proj.*"},
          {ours + "ln_2.*", theirs + "norm2.*"},
          {ours + "mlp.0.*", theirs + "mlp.fc1.*"},
          {ours + "mlp.3.*", theirs + "mlp.fc2.*"},
          {"encoder.ln.*", "norm.*"},
          {"heads.head.*", "head.*"}};
}

}  // namespace

void VitConfig::fields(recipe::Fields& f) {
  f.value("dropout", dropout,
          "probability of dropping a feature after the embedding, attention and each fully "
          "connected layer",
          recipe::between_open_high(0, 1));
  f.value("attention_dropout", attention_dropout, "probability of dropping an attention weight",
          recipe::between_open_high(0, 1));
}

std::shared_ptr<nn::Model> VitConfig::build(const nn::ModelShape& shape) const {
  nn::require_shape(kind_.name, shape, kind_.patch);
  if (shape.height % kind_.patch != 0 || shape.width % kind_.patch != 0) {
    throw Error(Exit::kRecipe,
                "model {0} cuts images into patches of {2}x{2} pixels: expected sides that are "
                "multiples of {2}, found {1}; choose another image size",
                kind_.name, fmt::format("{}x{}", shape.height, shape.width), kind_.patch);
  }
  return std::make_shared<VisionTransformer>(kind_, shape, Dropouts{dropout, attention_dropout});
}

std::vector<nn::WeightNames> VitConfig::weight_names() const {
  return {{"torchvision", {}}, {"timm", timm_rules()}};
}

}  // namespace brim::models::vit
