// The search space: keys of a recipe and the values that they may take.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/recipe/document.h"

namespace brim::sweep {

/// One key. Either a list of values, or a range to draw from.
struct Parameter {
  std::string key;                  // "optimizer.learning_rate"
  std::vector<std::string> values;  // as --set takes them; empty: a range
  double low = 0.0;
  double high = 0.0;
  bool is_log = false;      // uniform in the logarithm
  bool is_integer = false;  // whole numbers, both ends included

  bool is_range() const { return values.empty(); }
};

/// "model.name=resnet18,resnet34", "optimizer.learning_rate=1e-3..1e-1:log", or with ":5" behind
/// it, the list of five values in even steps. Commas in quotes or brackets part nothing. A range is
/// one of whole numbers where the key is an integer in `recipe`, or, where the recipe has no number
/// there, where both ends are written so. Throws Error(kRecipe).
Parameter parse_parameter(const std::string& text, const recipe::Value& recipe);

/// All of them. Throws Error(kRecipe) too where a key is given twice, or is one that a sweep sets.
std::vector<Parameter> parse_space(const std::vector<std::string>& texts,
                                   const recipe::Value& recipe);

/// The setting "key=value" at `place` in [0, 1); numbers are rounded to four digits.
std::string setting_at(const Parameter& parameter, double place);

/// How many combinations of lists there are, no more than `most`; `most` for a space with a range.
int64_t count_combinations(std::span<const Parameter> space, int64_t most);

/// The combination `index` of lists, the last key's values next to each other.
std::vector<std::string> combination(std::span<const Parameter> space, int64_t index);

}  // namespace brim::sweep
