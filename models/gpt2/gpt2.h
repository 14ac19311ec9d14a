// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019): decoder
// transformers with layer norms in front of each branch and an output layer tied to the embedding.
// Names and shapes are Hugging Face's, so that its weights load as they are: linear layers hold
// their weights as [inputs, outputs].
#pragma once

#include "framework/nn/model.h"

namespace brim::models::gpt2 {

struct GptArchitecture {
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t context = 0;  // tokens that the model sees at a time, at most
};

struct GptConfig : nn::ModelConfig {
  double dropout = 0.0;
  int64_t pad_vocabulary_to = 1;

  void fields(recipe::Fields& f) override;
  bool takes(nn::InputKind kind) const override { return kind == nn::InputKind::kTokens; }
  bool takes_documents() const override { return true; }
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override {
    return build_on(at::kCPU, shape);
  }
  /// The same on another device; on at::kMeta its tensors have names and shapes, but no memory.
  std::shared_ptr<nn::Model> build_on(at::Device device, const nn::ModelShape& shape) const;
  std::vector<nn::WeightNames> weight_names() const override;
  void leave_out_padding(std::map<std::string, at::Tensor>& weights,
                         const nn::ModelShape& shape) const override;

 protected:
  virtual GptArchitecture architecture(const nn::ModelShape& shape) const = 0;
};

/// Of a size that has a name; the context is GPT-2's, 1,024 tokens.
template <int64_t kLayers, int64_t kHeads, int64_t kWidth>
struct Gpt2OfSize final : GptConfig {
 protected:
  GptArchitecture architecture(const nn::ModelShape& /*shape*/) const override {
    return {.layers = kLayers, .heads = kHeads, .width = kWidth, .context = 1024};
  }
};

/// The same architecture in any size; the context is the data's length.
struct SmallGptConfig final : GptConfig {
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;

  void fields(recipe::Fields& f) override;

 protected:
  GptArchitecture architecture(const nn::ModelShape& shape) const override;
};

}  // namespace brim::models::gpt2
