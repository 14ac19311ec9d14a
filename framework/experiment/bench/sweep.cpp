#include "framework/experiment/bench/sweep.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/words.h"

namespace brim::experiment {
namespace {

struct OwnKey {
  std::string_view key;
  std::string_view instead;
};
constexpr std::array<OwnKey, 7> kOwnKeys = {{
    {"train.steps", "give --steps"},
    {"schedule.steps", "a bench measures the first steps of a long run"},
    {"telemetry.every_steps", "a bench records every step"},
    {"telemetry.tensorboard", "a bench writes no event file"},
    {"telemetry.exec", "a bench starts no program"},
    {"eval.enabled", "a bench measures training steps"},
    {"checkpoint.enabled", "a bench measures training steps"},
}};

void check_keys(const std::vector<Sweep>& sweeps) {
  for (size_t i = 0; i < sweeps.size(); ++i) {
    const std::string& key = sweeps[i].key;
    for (const OwnKey& own : kOwnKeys) {
      if (own.key == key) {
        throw Error(Exit::kRecipe, "--sweep {}: a bench sets this key itself; {}", key,
                    own.instead);
      }
    }
    for (size_t j = 0; j < i; ++j) {
      if (sweeps[j].key == key) {
        throw Error(Exit::kRecipe, "--sweep {} is given twice; list all its values in one", key);
      }
    }
  }
}

}  // namespace

Sweep parse_sweep(const std::string& text) {
  const size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0) {
    throw Error(Exit::kRecipe,
                "--sweep '{}': expected a key and its values, such as batch.micro=8,16,32", text);
  }
  Sweep sweep{text.substr(0, sign), {}};
  if (sign + 1 == text.size()) {
    throw Error(Exit::kRecipe, "--sweep {}=: the list of values is empty; give some, as in {}=8,16",
                sweep.key, sweep.key);
  }
  for (std::string& value : split_values(std::string_view(text).substr(sign + 1))) {
    if (value.find_first_not_of(' ') == std::string::npos) {
      throw Error(Exit::kRecipe, "--sweep {}: value {} of the list is empty", text,
                  sweep.values.size() + 1);
    }
    if (std::ranges::find(sweep.values, value) != sweep.values.end()) {
      throw Error(Exit::kRecipe, "--sweep {}: the value {} is given twice", text, value);
    }
    sweep.values.push_back(std::move(value));
  }
  return sweep;
}

std::vector<std::vector<std::string>> combinations(const std::vector<Sweep>& sweeps) {
  check_keys(sweeps);
  std::vector<std::vector<std::string>> result(1);
  for (const Sweep& sweep : sweeps) {
    if (result.size() * sweep.values.size() > kMaxVariants) {
      throw Error(Exit::kRecipe, "--sweep: more than {} combinations; sweep fewer values",
                  kMaxVariants);
    }
    std::vector<std::vector<std::string>> longer;
    for (const auto& settings : result) {
      for (const std::string& value : sweep.values) {
        longer.push_back(settings);
        longer.back().push_back(sweep.key + "=" + value);
      }
    }
    result = std::move(longer);
  }
  return result;
}

}  // namespace brim::experiment
