#include "framework/data/samplers/weighted.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/random.h"

namespace brim::data {
namespace {

constexpr int64_t kMaxWeightsBytes = int64_t{1} << 34;

double parse_weight(std::string_view word, int64_t line, const std::string& name) {
  double weight = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), weight);
  if (code != std::errc() || end != word.data() + word.size() || !std::isfinite(weight) ||
      weight < 0) {
    throw Error(Exit::kData, "{}:{}: expected a weight, a number of at least 0, found '{}'", name,
                line, word.substr(0, 40));
  }
  return weight;
}

/// Draws i with a probability in proportion to weights[i] in O(1): Walker's alias method, set up as
/// in Vose, "A linear algorithm for generating random numbers with a given distribution", 1991.
class AliasTable {
 public:
  /// At least one weight is above 0.
  explicit AliasTable(const std::vector<double>& weights) : cells_(weights.size()) {
    const size_t greatest =
        static_cast<size_t>(std::ranges::max_element(weights) - weights.begin());
    // Divided first, so that the sum is finite.
    double sum = 0;
    for (const double weight : weights) sum += weight / weights[greatest];
    const double scale = static_cast<double>(weights.size()) / sum;
    std::vector<double> share(weights.size());  // 1 on average
    std::vector<size_t> small, large;
    for (size_t i = 0; i < weights.size(); ++i) {
      share[i] = weights[i] / weights[greatest] * scale;
      (share[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
      const size_t little = small.back();
      const size_t much = large.back();
      small.pop_back();
      cells_[little] = {share[little], static_cast<int64_t>(much)};
      share[much] -= 1 - share[little];
      if (share[much] >= 1) continue;
      large.pop_back();
      small.push_back(much);
    }
    // What rounding left over is 1 but for rounding, or was 0 from the start.
    for (const size_t i : large) cells_[i] = {1, static_cast<int64_t>(i)};
    for (const size_t i : small) {
      cells_[i] = {weights[i] > 0 ? 1.0 : 0.0, static_cast<int64_t>(greatest)};
    }
  }

  int64_t draw(RandomStream& random) const {
    const int64_t i = random.below(static_cast<int64_t>(cells_.size()));
    const Cell& cell = cells_[static_cast<size_t>(i)];
    return random.uniform() < cell.keep ? i : cell.other;
  }

 private:
  struct Cell {
    double keep = 0;  // the probability of this cell's own number
    int64_t other = 0;
  };
  std::vector<Cell> cells_;
};

class Weighted final : public Order {
 public:
  Weighted(const std::vector<double>& weights, uint64_t seed, std::string text)
      : table_(weights), seed_(choice_seed(seed, Choice::kWeighted)), text_(std::move(text)) {}

  SampleRef at(int64_t epoch, int64_t position) const override {
    RandomStream random(seed_, static_cast<uint64_t>(epoch), static_cast<uint64_t>(position));
    return {table_.draw(random), position};
  }
  std::string text() const override { return text_; }
  bool is_permutation() const override { return false; }

 private:
  AliasTable table_;
  uint64_t seed_;
  std::string text_;
};

}  // namespace

std::vector<double> parse_weights(std::string_view text, int64_t count, const std::string& name) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  std::vector<double> weights;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    word = word.substr(std::min(word.find_first_not_of(kBlanks), word.size()));
    word = word.substr(0, word.find_last_not_of(kBlanks) + 1);
    weights.push_back(parse_weight(word, static_cast<int64_t>(weights.size()) + 1, name));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (static_cast<int64_t>(weights.size()) != count) {
    throw Error(Exit::kData,
                "{}: expected a weight for each of the {} training samples, one a line, found {}",
                name, count, weights.size());
  }
  if (std::ranges::all_of(weights, [](double weight) { return weight == 0; })) {
    throw Error(Exit::kData, "{}: expected a weight above 0, found none", name);
  }
  return weights;
}

void WeightedConfig::fields(recipe::Fields& f) {
  f.value("weights", weights,
          "text file with a weight for each training sample, one a line, in the dataset's order",
          recipe::Need::kRequired);
}

std::shared_ptr<const Order> WeightedConfig::order(const Dataset& dataset,
                                                   const OrderOptions& options) const {
  const std::string content = read_file(weights, Exit::kData, kMaxWeightsBytes);
  return std::make_shared<Weighted>(parse_weights(content, dataset.size(), weights.string()),
                                    options.seed,
                                    fmt::format("weighted by numbers with the digest {}",
                                                digest(std::as_bytes(std::span(content)))));
}

}  // namespace brim::data
