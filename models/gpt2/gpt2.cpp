#include "models/gpt2/gpt2.h"

#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/nn/block.h"
#include "framework/nn/fused.h"
#include "framework/nn/fused/attention.h"
#include "framework/nn/fused/gelu.h"
#include "framework/nn/fused/layer_norm.h"
#include "framework/nn/fused/linear_cross_entropy.h"
#include "framework/nn/key_value_cache.h"
#include "framework/nn/linear.h"
#include "framework/nn/sequence.h"

namespace brim::models::gpt2 {
namespace {

constexpr double kInitialStd = 0.02;
constexpr double kNormEpsilon = 1e-5;
constexpr const char* kEmbedding = "transformer.wte.weight";
constexpr const char* kPositions = "transformer.wpe.weight";

/// Where the tokens of a pass are and what attention looks at. The model sets it before its parts
/// run; a block that is recomputed in backward finds it as it was (nn::Sequence::begin).
struct AttentionPass {
  at::Tensor positions = {};  // of the tokens in their texts, int64 [T] or [N, T]
  at::Tensor mask = {};       // bool [N, 1, T, S]; undefined: there is none
  bool is_causal = true;      // each token looks at those before
  nn::CachedPass* cache =
      nullptr;  // where the tokens follow others: S counts those too, else S = T
};
using SharedPass = std::shared_ptr<AttentionPass>;

at::Tensor fresh(at::IntArrayRef sizes, at::Device device) {
  return at::empty(sizes, at::TensorOptions().dtype(at::kFloat).device(device));
}

/// Hugging Face's Conv1D: x · weight + bias, with the weight as [inputs, outputs].
class Conv1D : public torch::nn::Module, public nn::Fusable {
 public:
  Conv1D(int64_t inputs, int64_t outputs, double std, at::Device device) {
    weight_ = register_parameter("weight", fresh({inputs, outputs}, device).normal_(0, std));
    bias_ = register_parameter("bias", fresh({outputs}, device).zero_());
  }
  /// [N, T, inputs] to [N, T, outputs].
  at::Tensor forward(const at::Tensor& x) { return product(x, bias_); }
  /// The same without its bias.
  at::Tensor product(const at::Tensor& x) { return product(x, {}); }
  const at::Tensor& bias() const { return bias_; }

 private:
  at::Tensor product(const at::Tensor& x, const at::Tensor& bias) {
    const at::Tensor turned = weight_.t();
    const nn::LinearForm form = nn::linear_form(x, turned, bias, fused(), is_training());
    if (form != nn::LinearForm::kPlain) return nn::linear_in(form, x, turned, bias);
    const at::Tensor rows = x.flatten(0, 1);
    return (bias.defined() ? at::addmm(bias, rows, weight_) : at::mm(rows, weight_))
        .view({x.size(0), x.size(1), weight_.size(1)});
  }

  at::Tensor weight_, bias_;
};

class LayerNorm : public torch::nn::Module, public nn::Fusable {
 public:
  LayerNorm(int64_t width, at::Device device) {
    weight_ = register_parameter("weight", fresh({width}, device).fill_(1));
    bias_ = register_parameter("bias", fresh({width}, device).zero_());
  }
  at::Tensor forward(const at::Tensor& x) {
    return nn::layer_norm(x, state(), fused(), is_training());
  }
  /// Of x + branch, and that sum.
  nn::AddedNorm forward_add(const at::Tensor& x, const at::Tensor& branch) {
    return nn::add_layer_norm(x, branch, state(), fused(), is_training());
  }

 private:
  nn::LayerNormState state() const { return {weight_, bias_, kNormEpsilon}; }

  at::Tensor weight_, bias_;
};

class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t count, int64_t width, at::Device device) {
    weight_ = register_parameter("weight", fresh({count, width}, device).normal_(0, kInitialStd));
  }
  at::Tensor forward(const at::Tensor& ids) { return at::embedding(weight_, ids); }
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
};

class Attention : public torch::nn::Module, public nn::Fusable {
 public:
  Attention(const GptArchitecture& arch, double residual_std, double dropout, SharedPass pass,
            at::Device device)
      : heads_(arch.heads), dropout_(dropout), pass_(std::move(pass)) {
    const int64_t width = arch.width;
    c_attn_ =
        register_module("c_attn", std::make_shared<Conv1D>(width, 3 * width, kInitialStd, device));
    c_proj_ =
        register_module("c_proj", std::make_shared<Conv1D>(width, width, residual_std, device));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor qkv = c_attn_->forward(x);
    const double dropout = is_training() ? dropout_ : 0.0;
    if (pass_->cache == nullptr && !pass_->mask.defined()) {
      const nn::SelfAttention attention = {heads_, pass_->is_causal, dropout};
      return c_proj_->forward(nn::self_attention(qkv, attention, fused(), is_training()));
    }
    auto parts = qkv.split(x.size(2), 2);  // queries, keys, values
    if (pass_->cache != nullptr) {
      std::tie(parts[1], parts[2]) = pass_->cache->extend(parts[1], parts[2]);
    }
    const auto heads = [&](const at::Tensor& part) {  // [N, heads, T or S, width / heads]
      return part.unflatten(2, {heads_, -1}).transpose(1, 2);
    };
    const at::Tensor seen = at::scaled_dot_product_attention(
        heads(parts[0]), heads(parts[1]), heads(parts[2]),
        pass_->mask.defined() ? std::optional(pass_->mask) : std::nullopt, dropout,
        pass_->is_causal);
    return c_proj_->forward(seen.transpose(1, 2).flatten(2));
  }

 private:
  int64_t heads_;
  double dropout_;
  SharedPass pass_;
  std::shared_ptr<Conv1D> c_attn_, c_proj_;
};

class FeedForward : public torch::nn::Module, public nn::Fusable {
 public:
  FeedForward(int64_t width, double residual_std, at::Device device) {
    c_fc_ =
        register_module("c_fc", std::make_shared<Conv1D>(width, 4 * width, kInitialStd, device));
    c_proj_ =
        register_module("c_proj", std::make_shared<Conv1D>(4 * width, width, residual_std, device));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = is_fused() ? nn::bias_gelu(c_fc_->product(x), c_fc_->bias(),
                                                         nn::Gelu::kTanh, fused(), is_training())
                                         : at::gelu(c_fc_->forward(x), "tanh");
    return c_proj_->forward(hidden);
  }

 private:
  std::shared_ptr<Conv1D> c_fc_, c_proj_;
};

class GptBlock : public nn::Block {
 public:
  GptBlock(const GptArchitecture& arch, double dropout, const SharedPass& pass, at::Device device)
      : dropout_(dropout) {
    // Both branches of every layer add to one sum: their outputs begin that much smaller.
    const double std = kInitialStd / std::sqrt(2.0 * static_cast<double>(arch.layers));
    ln_1_ = register_module("ln_1", std::make_shared<LayerNorm>(arch.width, device));
    attn_ = register_module("attn", std::make_shared<Attention>(arch, std, dropout, pass, device));
    ln_2_ = register_module("ln_2", std::make_shared<LayerNorm>(arch.width, device));
    mlp_ = register_module("mlp", std::make_shared<FeedForward>(arch.width, std, device));
  }

  at::Tensor forward(const at::Tensor& x) override {
    const auto [attended, norm] = ln_2_->forward_add(x, dropped(attn_->forward(ln_1_->forward(x))));
    return attended + dropped(mlp_->forward(norm));
  }

 private:
  at::Tensor dropped(const at::Tensor& branch) const {
    return dropout_ > 0 ? at::dropout(branch, dropout_, is_training()) : branch;
  }

  double dropout_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<FeedForward> mlp_;
};

/// h: the blocks, named 0, 1, ….
class Blocks : public torch::nn::Module {
 public:
  Blocks(const GptArchitecture& arch, double dropout, const SharedPass& pass, at::Device device) {
    for (int64_t i = 0; i < arch.layers; ++i) {
      blocks_.push_back(register_module(std::to_string(i),
                                        std::make_shared<GptBlock>(arch, dropout, pass, device)));
    }
  }
  const std::vector<std::shared_ptr<GptBlock>>& all() const { return blocks_; }

 private:
  std::vector<std::shared_ptr<GptBlock>> blocks_;
};

class Transformer : public torch::nn::Module {
 public:
  Transformer(const GptArchitecture& arch, int64_t vocabulary, double dropout, at::Device device)
      : dropout_(dropout) {
    wte_ = register_module("wte", std::make_shared<Embedding>(vocabulary, arch.width, device));
    wpe_ = register_module("wpe", std::make_shared<Embedding>(arch.context, arch.width, device));
    h_ = register_module("h", std::make_shared<Blocks>(arch, dropout, pass_, device));
    ln_f_ = register_module("ln_f", std::make_shared<LayerNorm>(arch.width, device));
  }

  /// Of rows of tokens, or of tokens, positions and segments.
  void begin(const at::Tensor& inputs) {
    if (inputs.dim() == 2) {
      *pass_ = {.positions = at::arange(inputs.size(1), inputs.options())};
      return;
    }
    const at::Tensor segments = inputs.select(1, 2);
    const int64_t length = inputs.size(2);
    const at::Tensor before = at::ones({length, length}, inputs.options().dtype(at::kBool)).tril();
    *pass_ = {
        .positions = inputs.select(1, 1),
        .mask =
            ((segments.unsqueeze(1) == segments.unsqueeze(2)).logical_and_(before)).unsqueeze(1),
        .is_causal = false};
  }
  /// Of tokens that follow those in a cache.
  void begin(nn::CachedPass& cache) {
    *pass_ = {.positions = cache.positions(),
              .mask = cache.mask(),
              .is_causal = cache.is_causal(),
              .cache = &cache};
  }
  void end() { *pass_ = {}; }

  /// Tokens, or those with positions and segments, to [N, T, width].
  at::Tensor embed(const at::Tensor& inputs) {
    const at::Tensor tokens = inputs.dim() == 2 ? inputs : inputs.select(1, 0);
    const at::Tensor x = wte_->forward(tokens) + wpe_->forward(pass_->positions);
    return dropout_ > 0 ? at::dropout(x, dropout_, is_training()) : x;
  }
  const std::vector<std::shared_ptr<GptBlock>>& blocks() const { return h_->all(); }
  at::Tensor norm(const at::Tensor& x) { return ln_f_->forward(x); }
  const at::Tensor& embedding() const { return wte_->weight(); }
  int64_t context() const { return wpe_->weight().size(0); }

 private:
  double dropout_;
  SharedPass pass_ = std::make_shared<AttentionPass>();
  std::shared_ptr<Embedding> wte_, wpe_;
  std::shared_ptr<Blocks> h_;
  std::shared_ptr<LayerNorm> ln_f_;
};

class Gpt : public nn::Sequence, public nn::IncrementalDecoder {
 public:
  /// Rows of the embedding from `vocabulary` on are padding: nothing is ever said about them.
  Gpt(const GptArchitecture& arch, int64_t vocabulary, int64_t padded, double dropout,
      at::Device device)
      : vocabulary_(vocabulary), heads_(arch.heads) {
    transformer_ = register_module("transformer",
                                   std::make_shared<Transformer>(arch, padded, dropout, device));
    add_part("stem", {"transformer.wte", "transformer.wpe"},
             [this](const at::Tensor& inputs) { return transformer_->embed(inputs); });
    for (size_t i = 0; i < transformer_->blocks().size(); ++i) {
      add_part("transformer.h." + std::to_string(i), transformer_->blocks()[i]);
    }
    add_part("head", {"transformer.ln_f", "transformer.wte"},
             [this](const at::Tensor& x) { return logits_of(transformer_->norm(x)); });
  }

  void begin(const at::Tensor& inputs) override { transformer_->begin(inputs); }

  at::Tensor token_loss(const at::Tensor& inputs, const at::Tensor& labels,
                        int64_t ignore_index) override {
    begin(inputs);
    const at::Tensor x = transformer_->norm(run(0, parts().size() - 1, inputs));
    const at::Tensor& all = transformer_->embedding();
    const at::Tensor rows = all.size(0) == vocabulary_ ? all : all.narrow(0, 0, vocabulary_);
    return nn::linear_cross_entropy(x.flatten(0, 1), rows, labels.flatten(), ignore_index, fused(),
                                    is_training());
  }

  at::Tensor forward_next(const at::Tensor& tokens, nn::KeyValueCache& cache,
                          int64_t first_row) override {
    nn::CachedPass pass(cache, first_row, tokens);
    transformer_->begin(pass);
    const at::Tensor x = transformer_->norm(run(0, parts().size() - 1, tokens));
    at::Tensor logits = logits_of(x.select(1, -1));  // of the last token
    transformer_->end();
    pass.commit();
    return logits;
  }

  /// transformers' older files hold attention's causal masks, and some the output layer, which is
  /// the embedding. Its rows may be as many as the vocabulary, or padded as here. Of a longer
  /// context the first positions are taken, which gives the same logits.
  void adapt_weights(std::map<std::string, at::Tensor>& theirs) const override {
    std::erase_if(theirs, [](const auto& item) {
      return item.first.ends_with(".attn.masked_bias") ||
             (item.first.ends_with(".attn.bias") && item.second.dim() == 4);
    });
    const auto positions = theirs.find(kPositions);
    const int64_t context = transformer_->context();
    if (positions != theirs.end() && positions->second.dim() == 2 &&
        positions->second.size(0) > context) {
      log::info("model.pretrained: of {} positions the first {} are taken",
                positions->second.size(0), context);
      positions->second = positions->second.narrow(0, 0, context);
    }
    const auto embedding = theirs.find(kEmbedding);
    if (embedding == theirs.end()) return;
    const auto head = theirs.find("lm_head.weight");
    if (head != theirs.end()) {
      if (!head->second.equal(embedding->second)) {
        throw Error(Exit::kCheckpoint,
                    "lm_head.weight differs from {}: expected a GPT-2 whose output layer is tied "
                    "to its embedding",
                    kEmbedding);
      }
      theirs.erase(head);
    }
    const at::Tensor& ours = transformer_->embedding();
    at::Tensor& rows = embedding->second;
    if (rows.dim() != 2 || rows.size(0) != vocabulary_ || rows.size(1) != ours.size(1)) return;
    if (ours.size(0) > vocabulary_) {
      rows = at::constant_pad_nd(rows, {0, 0, 0, ours.size(0) - vocabulary_});
    }
  }

  void require_same(const nlohmann::json& config, const std::string& where) const override {
    if (config.value("model_type", "") != "gpt2") return;
    const auto require = [&](bool is_same, std::string_view key, const auto& expected) {
      if (is_same) return;
      throw Error(Exit::kCheckpoint, "{}: expected a GPT-2 with {} = {}, found {}", where, key,
                  expected, config.at(key).dump());
    };
    require(config.value("n_head", heads_) == heads_, "n_head", heads_);
    const std::string activation = config.value("activation_function", "gelu_new");
    require(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "activation_function",
            "\"gelu_new\"");
    require(config.value("layer_norm_epsilon", kNormEpsilon) == kNormEpsilon, "layer_norm_epsilon",
            kNormEpsilon);
    require(config.value("scale_attn_weights", true), "scale_attn_weights", true);
    require(!config.value("scale_attn_by_inverse_layer_idx", false),
            "scale_attn_by_inverse_layer_idx", false);
  }

 private:
  /// [..., width] to [..., V].
  at::Tensor logits_of(const at::Tensor& x) {
    const at::Tensor logits = nn::linear(x, transformer_->embedding(), {}, fused(), is_training());
    return logits.size(-1) == vocabulary_ ? logits : logits.narrow(-1, 0, vocabulary_);
  }

  int64_t vocabulary_, heads_;
  std::shared_ptr<Transformer> transformer_;
};

}  // namespace

void GptConfig::fields(recipe::Fields& f) {
  f.value("dropout", dropout, "probability of dropping an embedding, a branch's output or a look",
          recipe::between_open_high(0, 1));
  f.value("pad_vocabulary_to", pad_vocabulary_to,
          "the embedding has rows up to a multiple of this, as 64 or 128 is fast on GPUs",
          recipe::between(1, 65536));
}

std::shared_ptr<nn::Model> GptConfig::build_on(at::Device device,
                                               const nn::ModelShape& shape) const {
  const GptArchitecture arch = architecture(shape);
  if (shape.length > arch.context) {
    throw Error(Exit::kRecipe,
                "this model takes at most {} tokens at a time; the data's rows have {}. Lower "
                "data.length, or choose another model",
                arch.context, shape.length);
  }
  const int64_t pad = pad_vocabulary_to;
  const int64_t padded = (shape.vocabulary + pad - 1) / pad * pad;
  return std::make_shared<Gpt>(arch, shape.vocabulary, padded, dropout, device);
}

/// transformers writes them with or without "transformer.", by the class that was saved.
std::vector<nn::WeightNames> GptConfig::weight_names() const {
  return {{.package = "hf", .rules = {}}, {.package = "hf", .rules = {{"transformer.*", "*"}}}};
}

void GptConfig::leave_out_padding(std::map<std::string, at::Tensor>& weights,
                                  const nn::ModelShape& shape) const {
  at::Tensor& rows = weights.at(kEmbedding);
  rows = rows.narrow(0, 0, shape.vocabulary);
}

void SmallGptConfig::fields(recipe::Fields& f) {
  f.value("layers", layers, "blocks of attention and feed-forward", recipe::between(1, 1024));
  f.value("heads", heads, "of attention in each block; they divide the width",
          recipe::between(1, 1024));
  f.value("width", width, "values for each token between the blocks", recipe::between(1, 65536));
  GptConfig::fields(f);
}

GptArchitecture SmallGptConfig::architecture(const nn::ModelShape& shape) const {
  if (width % heads != 0) {
    throw Error(Exit::kRecipe,
                "[model]: expected 'heads' to divide 'width', found {} heads for a width of {}",
                heads, width);
  }
  return {.layers = layers, .heads = heads, .width = width, .context = shape.length};
}

}  // namespace brim::models::gpt2
