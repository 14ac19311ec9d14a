#include "framework/train/inference/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/base/stop.h"
#include "framework/train/inference/next_logits.h"
#include "framework/train/inference/trained_model.h"

namespace brim::train {
namespace {

void check_prompt(std::span<const int32_t> prompt, int64_t number, int64_t vocabulary) {
  if (prompt.empty()) throw Error(Exit::kData, "prompt {} is empty; give it a word", number + 1);
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < vocabulary) continue;
    throw Error(Exit::kData,
                "prompt {}: expected token ids from 0 to {} (data.vocabulary - 1), found {} at "
                "token {}; is the tokenizer the data's?",
                number + 1, vocabulary - 1, prompt[i], i);
  }
}

/// The next token from its logits, float [V] on the CPU.
int32_t draw(const at::Tensor& logits, const GenerateOptions& options, RandomStream& random) {
  const float* values = logits.const_data_ptr<float>();
  const int64_t count = options.ids > 0 ? std::min(options.ids, logits.size(0)) : logits.size(0);
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  if (options.temperature == 0) return *std::ranges::min_element(order, likelier);
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size()) {
    std::ranges::nth_element(order, order.begin() + options.top_k - 1, likelier);
    order.resize(static_cast<size_t>(options.top_k));
    std::ranges::sort(order);  // the draw below must not depend on how elements were sorted out
  }
  const float highest = values[*std::ranges::min_element(order, likelier)];
  std::vector<double> sums;
  double sum = 0;
  for (const int32_t id : order) {
    sum += std::exp((static_cast<double>(values[id]) - highest) / options.temperature);
    sums.push_back(sum);
  }
  const auto chosen = std::ranges::upper_bound(sums, random.uniform() * sum);
  return order[std::min<size_t>(static_cast<size_t>(chosen - sums.begin()), order.size() - 1)];
}

/// A text that is not finished.
struct OpenText {
  size_t prompt;
  std::vector<int32_t> ids;
  RandomStream random;
};

std::vector<OpenText> open_texts(const std::vector<std::vector<int32_t>>& prompts, uint64_t seed,
                                 int64_t first_number, int64_t vocabulary) {
  std::vector<OpenText> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t number = first_number + static_cast<int64_t>(i);
    check_prompt(prompts[i], number, vocabulary);
    texts.push_back({i, prompts[i], RandomStream(seed, static_cast<uint64_t>(number), 0)});
  }
  return texts;
}

}  // namespace

std::vector<std::vector<int32_t>> generate(RankModel& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options, int64_t first_number) {
  const at::NoGradGuard no_grad;
  model.module->eval();
  std::vector<OpenText> open =
      open_texts(prompts, options.seed, first_number, model.input.vocabulary);
  size_t longest = 0;
  for (const OpenText& text : open) longest = std::max(longest, text.ids.size());
  NextLogits next_logits(model, open.size(), static_cast<int64_t>(longest) + options.max_tokens);
  std::vector<std::vector<int32_t>> results(prompts.size());
  for (int64_t step = 0; step < options.max_tokens && !open.empty(); ++step) {
    // Ranks that share the model's weights wait for each other in each pass.
    const bool stops = model.shares_weights()
                           ? model.group->any(stop_requested(), "the stop request")
                           : stop_requested();
    if (stops) throw Error(Exit::kStopped, "stopped while text was generated");
    std::vector<Text> texts;
    for (const OpenText& text : open) texts.emplace_back(text.ids);
    const at::Tensor logits = next_logits(texts);
    require_finite(logits);
    const at::Tensor tokens = at::empty({std::ssize(open)}, at::kInt);
    auto* const drawn = tokens.data_ptr<int32_t>();
    for (size_t row = 0; row < open.size(); ++row) {
      drawn[row] = draw(logits[static_cast<int64_t>(row)], options, open[row].random);
    }
    // Their logits may differ in the last bits, where their CPUs do, and all must end together.
    if (model.shares_weights()) model.group->broadcast(tokens, "the next tokens");
    for (size_t row = open.size(); row-- > 0;) {  // from the end: the last one fills a gap
      OpenText& text = open[row];
      const int32_t token = drawn[row];
      if (token != options.end) {
        text.ids.push_back(token);
        results[text.prompt].push_back(token);
        continue;
      }
      next_logits.remove(row, open.size());
      std::swap(text, open.back());
      open.pop_back();
    }
  }
  return results;
}

}  // namespace brim::train
