#include "framework/experiment/bench/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "framework/base/error.h"
#include "framework/experiment/bench/bench_summary.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

constexpr int kSlowerStatus = 10;
constexpr int kTooNoisyStatus = 11;
constexpr size_t kMaxDifferences = 50;
constexpr size_t kLongestValue = 200;

/// A value of a file, for people.
std::string shown(const json& value) {
  if (value.is_null()) return "nothing";
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kLongestValue ? text : text.substr(0, kLongestValue) + "…";
}

std::vector<std::string> differences(const json& a, const json& b) {
  std::vector<std::string> lines;
  const json of_a = a.flatten();
  const json of_b = b.flatten();
  const auto take = [&](const std::string& key) {
    if (key.empty()) return;  // of an object without members
    const json in_a = of_a.value(key, json());
    const json in_b = of_b.value(key, json());
    if (in_a != in_b && lines.size() < kMaxDifferences) {
      lines.push_back(
          fmt::format("{}: {} in A, {} in B", shown(key.substr(1)), shown(in_a), shown(in_b)));
    }
  };
  for (const auto& [key, value] : of_a.items()) take(key);
  for (const auto& [key, value] : of_b.items()) {
    if (!of_a.contains(key)) take(key);
  }
  return lines;
}

ComparedVariant compare(const RecordedVariant& a, const RecordedVariant& b, double margin) {
  ComparedVariant result{
      .a = a.name, .b = b.name, .ratio = ratio_of(b.samples_per_s, a.samples_per_s)};
  result.verdict = judge(result.ratio, margin);
  return result;
}

const RecordedVariant* find(const BenchRecord& record, const std::string& name) {
  const auto found = std::ranges::find(record.variants, name, &RecordedVariant::name);
  return found == record.variants.end() ? nullptr : &*found;
}

}  // namespace

std::string_view word_of(Verdict verdict) {
  static constexpr std::array<std::string_view, 4> kWords = {"faster", "same", "slower",
                                                             "too noisy to say"};
  return kWords[static_cast<size_t>(verdict)];
}

Verdict judge(const Ratio& ratio, double margin) {
  const auto& [low, high, confidence] = ratio.interval;
  if (confidence < kConfidence) return Verdict::kTooNoisy;
  if (low >= 1 - margin && (high <= 1 + margin || low <= 1)) return Verdict::kSame;
  if (low > 1) return Verdict::kFaster;
  return high < 1 ? Verdict::kSlower : Verdict::kTooNoisy;
}

Comparison compare(const BenchRecord& a, const BenchRecord& b, double margin) {
  Comparison result;
  const bool is_one = a.variants.size() == 1 || b.variants.size() == 1;
  for (const RecordedVariant& in_a : a.variants) {
    const RecordedVariant* same = find(b, in_a.name);
    if (is_one) {
      for (const RecordedVariant& in_b : b.variants) {
        result.variants.push_back(compare(in_a, in_b, margin));
      }
    } else if (same != nullptr) {
      result.variants.push_back(compare(in_a, *same, margin));
    } else {
      result.unmatched.push_back("only in A: " + in_a.name);
    }
  }
  if (!is_one) {
    for (const RecordedVariant& in_b : b.variants) {
      if (find(a, in_b.name) == nullptr) result.unmatched.push_back("only in B: " + in_b.name);
    }
  }
  if (result.variants.empty()) {
    throw Error(Exit::kRecipe,
                "the two benches have no variant in common: A has '{}' and {} more, B has '{}' and "
                "{} more; sweep the same values in both",
                a.variants[0].name, a.variants.size() - 1, b.variants[0].name,
                b.variants.size() - 1);
  }
  result.differences = differences(a.environment, b.environment);
  return result;
}

int status_of(std::span<const Verdict> verdicts) {
  const auto has = [&](Verdict verdict) {
    return std::ranges::find(verdicts, verdict) != verdicts.end();
  };
  if (has(Verdict::kSlower)) return kSlowerStatus;
  return has(Verdict::kTooNoisy) ? kTooNoisyStatus : 0;
}

int status_of(const Comparison& comparison) {
  std::vector<Verdict> verdicts;
  for (const ComparedVariant& variant : comparison.variants) verdicts.push_back(variant.verdict);
  return status_of(verdicts);
}

std::string report(const Comparison& comparison) {
  std::string text;
  for (const ComparedVariant& variant : comparison.variants) {
    const auto& [low, high, confidence] = variant.ratio.interval;
    text += fmt::format("{}: {:.3f}× as fast as A ({:.3f}–{:.3f} with {:.1f} %): {}\n",
                        variant.a == variant.b ? variant.b : variant.b + " against " + variant.a,
                        variant.ratio.value, low, high, 100 * confidence, word_of(variant.verdict));
    if (confidence < kConfidence) {
      text += kTooFewRunsNote;
    }
  }
  for (const std::string& line : comparison.unmatched) text += line + "\n";
  for (const std::string& line : comparison.differences) text += "differs: " + line + "\n";
  return text;
}

json to_json(const Comparison& comparison) {
  json variants = json::array();
  for (const ComparedVariant& variant : comparison.variants) {
    const Interval& interval = variant.ratio.interval;
    variants.push_back({{"a", variant.a},
                        {"b", variant.b},
                        {"ratio", variant.ratio.value},
                        {"low", interval.low},
                        {"high", interval.high},
                        {"confidence", interval.confidence},
                        {"verdict", word_of(variant.verdict)}});
  }
  return {{"variants", std::move(variants)},
          {"unmatched", comparison.unmatched},
          {"differences", comparison.differences},
          {"status", status_of(comparison)}};
}

}  // namespace brim::experiment
