#include "framework/train/inference/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/base/stop.h"

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

/// The last tokens of each text in rows of one length, those of shorter ones filled up with 0: what
/// follows a token doesn't change what is said about it.
at::Tensor windows(const std::vector<std::vector<int32_t>>& texts, int64_t most) {
  size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  const auto length = std::min<int64_t>(static_cast<int64_t>(longest), most);
  const at::Tensor rows = at::zeros({static_cast<int64_t>(texts.size()), length}, at::kLong);
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t seen = std::min<size_t>(texts[i].size(), static_cast<size_t>(length));
    std::copy(texts[i].end() - static_cast<std::ptrdiff_t>(seen), texts[i].end(),
              rows[static_cast<int64_t>(i)].data_ptr<int64_t>());
  }
  return rows;
}

/// For models that take documents: each row is one.
at::Tensor as_documents(const at::Tensor& rows) {
  const at::Tensor positions = at::arange(rows.size(1), rows.options()).expand_as(rows);
  return at::stack({rows, positions, at::ones_like(rows)}, 1);
}

/// The next token from its logits, float [V] on the CPU.
int32_t draw(const at::Tensor& logits, const GenerateOptions& options, RandomStream& random) {
  const float* values = logits.const_data_ptr<float>();
  std::vector<int32_t> order(static_cast<size_t>(logits.size(0)));
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

/// Logits of the token that follows each text, float [texts, V] on the CPU.
at::Tensor next_logits(TrainingComponents& components,
                       const std::vector<std::vector<int32_t>>& texts) {
  const amp::Autocast autocast(components.device.type(), components.precision);
  at::Tensor rows = windows(texts, components.input.length).to(components.device);
  const int64_t length = rows.size(1);
  if (components.input.has_documents) rows = as_documents(rows);
  std::vector<int64_t> last;
  for (const auto& text : texts) {
    last.push_back(std::min<int64_t>(static_cast<int64_t>(text.size()), length) - 1);
  }
  const at::Tensor logits = components.model->forward(rows);  // [texts, T, V]
  const at::Tensor index = at::tensor(last, at::kLong).to(logits.device()).view({-1, 1, 1});
  return logits.gather(1, index.expand({-1, 1, logits.size(2)})).squeeze(1).to(at::kFloat).cpu();
}

}  // namespace

std::vector<std::vector<int32_t>> generate(TrainingComponents& components,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options, int64_t first_number) {
  const at::NoGradGuard no_grad;
  components.model->eval();
  std::vector<RandomStream> random;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t number = first_number + static_cast<int64_t>(i);
    check_prompt(prompts[i], number, components.input.vocabulary);
    random.emplace_back(options.seed, static_cast<uint64_t>(number), 0);
  }
  std::vector<std::vector<int32_t>> texts = prompts, results(prompts.size());
  std::vector<size_t> open(prompts.size());  // the texts that are not finished
  std::iota(open.begin(), open.end(), 0);
  for (int64_t step = 0; step < options.max_tokens && !open.empty(); ++step) {
    if (stop_requested()) throw Error(Exit::kStopped, "stopped while text was generated");
    std::vector<std::vector<int32_t>> going;
    for (const size_t i : open) going.push_back(texts[i]);
    const at::Tensor logits = next_logits(components, going).contiguous();
    std::vector<size_t> still_open;
    for (size_t row = 0; row < open.size(); ++row) {
      const size_t i = open[row];
      const int32_t token = draw(logits[static_cast<int64_t>(row)], options, random[i]);
      if (token == options.end) continue;
      texts[i].push_back(token);
      results[i].push_back(token);
      still_open.push_back(i);
    }
    open = std::move(still_open);
  }
  return results;
}

}  // namespace brim::train
