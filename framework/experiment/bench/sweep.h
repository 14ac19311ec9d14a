// What a bench varies: keys of a recipe with the values that they take in turn.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace brim::experiment {

constexpr size_t kMaxVariants = 256;  // of one bench

struct Sweep {
  std::string key;                  // "batch.micro"
  std::vector<std::string> values;  // as --set takes them
};

/// "batch.micro=8,16,32"; commas in quotes or brackets part nothing. Throws Error(kRecipe) for
/// anything but a key and a list of different values.
Sweep parse_sweep(const std::string& text);

/// Every combination, the last sweep's values next to each other, each a list of "key=value"; one
/// empty list without sweeps. Throws Error(kRecipe) where a key is swept twice or is one that a
/// bench sets itself, and for more than kMaxVariants combinations.
std::vector<std::vector<std::string>> combinations(const std::vector<Sweep>& sweeps);

}  // namespace brim::experiment
