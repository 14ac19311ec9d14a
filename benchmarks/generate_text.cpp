// How long a GPT takes to write text with a cache of keys and values, and how long when it computes
// all again for each token, in turn in one process:
//
//   generate_text [--json] [TOKENS [VOCABULARY [ROUNDS]]]
//
// TOKENS (512): written after a prompt of one token, greedily, by a GPT of 4 layers, 8 heads, width
// 256 and twice as long a context, in fp32. VOCABULARY (257): 50257 is GPT-2's. ROUNDS (3): of
// both, each time in the other order; medians. --json: one line, seconds of either.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "framework/nn/fused.h"
#include "framework/nn/wrap.h"
#include "framework/train/inference/generate.h"
#include "models/gpt2/gpt2.h"

namespace brim::train {
namespace {

RankModel with_input(std::shared_ptr<nn::Model> module, const nn::ModelShape& shape) {
  RankModel model;
  model.input = shape;
  model.module = std::move(module);
  return model;
}

double seconds_for(RankModel& model, int64_t tokens) {
  const auto start = std::chrono::steady_clock::now();
  const auto texts = generate(model, {{1}}, {.max_tokens = tokens, .temperature = 0});
  if (std::ssize(texts.front()) != tokens) std::abort();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int run(std::vector<std::string> words) {
  const bool as_json = !words.empty() && words.front() == "--json";
  if (as_json) words.erase(words.begin());
  const int64_t tokens = !words.empty() ? std::stoll(words[0]) : 512;
  const int64_t vocabulary = words.size() > 1 ? std::stoll(words[1]) : 257;
  const int rounds = words.size() > 2 ? std::stoi(words[2]) : 3;
  const nn::ModelShape shape = {.length = 2 * tokens, .vocabulary = vocabulary};
  models::gpt2::SmallGptConfig config;
  config.heads = 8;
  config.width = 256;
  const auto model = config.build(shape);
  nn::use_fused(*model, nn::Fused::kUsual);
  RankModel cached = with_input(model, shape);
  const auto forward = [&model](const at::Tensor& ids) { return model->forward(ids); };
  RankModel plain = with_input(std::make_shared<nn::Wrapped>(model, forward, vocabulary), shape);
  seconds_for(cached, 16);
  seconds_for(plain, 16);
  std::vector<double> cached_s, plain_s;
  for (int round = 0; round < rounds; ++round) {
    if (round % 2 == 0) cached_s.push_back(seconds_for(cached, tokens));
    plain_s.push_back(seconds_for(plain, tokens));
    if (round % 2 == 1) cached_s.push_back(seconds_for(cached, tokens));
  }
  if (as_json) {
    fmt::print("{{\"cached_s\": {}, \"recomputed_s\": {}}}\n", median(cached_s), median(plain_s));
    return 0;
  }
  fmt::print("{} tokens: {:.2f} s with a cache, {:.2f} s without: {:.1f}x\n", tokens,
             median(cached_s), median(plain_s), median(plain_s) / median(cached_s));
  return 0;
}

}  // namespace
}  // namespace brim::train

int main(int argc, char** argv) {
  return brim::train::run(std::vector<std::string>(argv + 1, argv + argc));
}
