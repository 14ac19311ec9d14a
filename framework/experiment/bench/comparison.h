// Two benches against each other: how many times as fast is the second as the first, and is that
// more than noise.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/experiment/bench/bench_file.h"
#include "framework/experiment/bench/statistics.h"

namespace brim::experiment {

enum class Verdict { kFaster, kSame, kSlower, kTooNoisy };
std::string_view word_of(Verdict verdict);

inline constexpr std::string_view kTooFewRunsNote =
    "note: too few runs for an interval of 95 %: measure with --repeats 4 or more\n";

/// With the interval of the ratio of speeds [low, high] and the tolerated share m:
///   same       where it lies within [1 - m, 1 + m], or above 1 - m without being above 1
///   faster     where it lies above 1, slower: below 1
///   too noisy  otherwise, and where the interval covers less than kConfidence
Verdict judge(const Ratio& ratio, double margin);

struct ComparedVariant {
  std::string a;  // names
  std::string b;
  Ratio ratio;  // samples/s of b by those of a
  Verdict verdict = Verdict::kTooNoisy;
};

struct Comparison {
  std::vector<ComparedVariant> variants;
  std::vector<std::string> unmatched;    // "only in A: batch.micro=8"
  std::vector<std::string> differences;  // of environment: "machine/cpu: X in A, Y in B"
};

/// Variants of the same name are compared; where either has a single one, it is compared with all
/// of the other's. Throws Error(kRecipe) where none have a name in common. 0 ≤ margin < 1.
Comparison compare(const BenchRecord& a, const BenchRecord& b, double margin);

/// The exit status: 0 where all are the same or faster, 10 where one is slower, else 11.
int status_of(std::span<const Verdict> verdicts);
int status_of(const Comparison& comparison);

std::string report(const Comparison& comparison);
nlohmann::json to_json(const Comparison& comparison);

}  // namespace brim::experiment
