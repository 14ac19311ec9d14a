// Text by a cache of keys and values against text for which all is computed again at each token.
#include "framework/train/inference/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "framework/nn/wrap.h"
#include "framework/train/inference/next_logits.h"
#include "models/gpt2/gpt2.h"

namespace brim::train {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kLength = 64;
constexpr int64_t kVocabulary = 31;
const std::vector<Ids> kPrompts = {
    {3}, {2, 7, 1, 8}, {1, 4, 1, 5, 9, 2, 6, 5, 3}, {9, 9, 9, 9}, {6, 5, 5, 6}};

/// A GPT with weights so large that each token depends on all before it.
std::shared_ptr<nn::Model> gpt(bool has_documents = false) {
  at::manual_seed(7);
  models::gpt2::SmallGptConfig config;
  config.layers = 3;
  config.width = 32;
  config.pad_vocabulary_to = 8;
  const auto model =
      config.build({.length = kLength, .vocabulary = kVocabulary, .has_documents = has_documents});
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 2) parameter.mul_(12);
  }
  return model;
}

RankModel rank_model_of(std::shared_ptr<nn::Model> model, bool has_documents = false) {
  RankModel ours;
  ours.input = {.length = kLength, .vocabulary = kVocabulary, .has_documents = has_documents};
  ours.module = std::move(model);
  ours.module->eval();
  return ours;
}

/// The same model as one from outside, that has forward() alone.
std::shared_ptr<nn::Model> without_cache(const std::shared_ptr<nn::Model>& model) {
  return std::make_shared<nn::Wrapped>(
      model, [model](const at::Tensor& tokens) { return model->forward(tokens); }, kVocabulary);
}

/// The largest difference, over `steps` steps of greedy continuation, between what the model says
/// with a cache, of all prompts together, and without one, of each text alone.
double greatest_difference(RankModel& ours, int64_t steps) {
  const at::NoGradGuard no_grad;
  RankModel plain = rank_model_of(without_cache(ours.module));
  plain.precision = ours.precision;
  std::vector<Ids> texts = kPrompts;
  NextLogits cached(ours, texts.size(), kLength);
  double greatest = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor logits = cached({texts.begin(), texts.end()});
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{std::ssize(texts), kVocabulary}));
    for (int64_t i = 0; i < std::ssize(texts); ++i) {
      Ids& text = texts[static_cast<size_t>(i)];
      const at::Tensor alone = NextLogits(plain, 1, kLength)({text})[0];
      greatest = std::max(greatest, (logits[i] - alone).abs().max().item<double>());
      text.push_back(static_cast<int32_t>(alone.argmax().item<int64_t>()));
    }
  }
  return greatest;
}

TEST(NextLogits, AreThoseOfRecomputationAtEachStep) {
  RankModel ours = rank_model_of(gpt());
  EXPECT_LT(greatest_difference(ours, 3 * kLength), 1e-4);
  ours.module->to(at::kDouble);
  ours.precision.compute = at::kDouble;
  EXPECT_LT(greatest_difference(ours, 3 * kLength), 1e-5);  // compared as float
}

TEST(NextLogits, UnderAutocastDifferByItsRounding) {
  RankModel ours = rank_model_of(gpt());
  ours.precision = {.compute = at::kBFloat16, .autocast = true};
  const double difference = greatest_difference(ours, kLength - 10);
  EXPECT_LT(difference, 0.5);
  EXPECT_GT(difference, 0);
}

TEST(Window, MovesByHalfALength) {
  const Ids text(40, 1);
  for (const auto& [size, seen] : {std::pair{5, 5}, {8, 8}, {9, 5}, {12, 8}, {13, 5}, {40, 8}}) {
    const Text window = window_of(Text(text).first(static_cast<size_t>(size)), 8);
    EXPECT_EQ(std::ssize(window), seen) << size;
    EXPECT_EQ(window.data() + seen, text.data() + size);
  }
  EXPECT_EQ(window_of(text, 1).size(), 1);
  EXPECT_EQ(window_of(text, 40).size(), 40);
}

TEST(Generate, WritesTheSameTextWithAndWithoutACache) {
  RankModel cached = rank_model_of(gpt());
  RankModel plain = rank_model_of(without_cache(cached.module));
  const GenerateOptions greedy = {.max_tokens = 300, .temperature = 0};
  const auto texts = generate(cached, kPrompts, greedy);
  EXPECT_EQ(texts, generate(plain, kPrompts, greedy));
  for (const Ids& text : texts) {
    EXPECT_EQ(text.size(), 300);
    EXPECT_GT(std::set(text.begin(), text.end()).size(), 5) << "too simple a text to tell";
  }
  const GenerateOptions drawn = {.max_tokens = 150, .temperature = 3, .seed = 4};
  EXPECT_EQ(generate(cached, kPrompts, drawn), generate(plain, kPrompts, drawn));
}

TEST(Generate, FinishedTextsLeaveTheOthersAsTheyAre) {
  RankModel cached = rank_model_of(gpt());
  RankModel plain = rank_model_of(without_cache(cached.module));
  std::vector<Ids> prompts = kPrompts;
  for (int32_t i = 0; i < 6; ++i) prompts.push_back({i + 1, 7, 2 * i + 1, 5});
  std::set<size_t> lengths;
  for (const uint64_t seed : {1, 2, 3}) {
    const GenerateOptions how = {.max_tokens = 100, .temperature = 0.9, .seed = seed, .end = 0};
    const auto texts = generate(cached, prompts, how);
    EXPECT_EQ(texts, generate(plain, prompts, how));
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(generate(cached, {prompts[i]}, how, static_cast<int64_t>(i)).front(), texts[i]);
      lengths.insert(texts[i].size());
    }
  }
  EXPECT_GE(lengths.size(), 10) << "texts must end at different steps";
}

TEST(Generate, TakesModelsOfDocuments) {
  RankModel cached = rank_model_of(gpt(true), true);
  RankModel plain = rank_model_of(without_cache(cached.module), true);
  const GenerateOptions greedy = {.max_tokens = 100, .temperature = 0};
  EXPECT_EQ(generate(cached, kPrompts, greedy), generate(plain, kPrompts, greedy));
}

}  // namespace
}  // namespace brim::train
