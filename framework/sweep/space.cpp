#include "framework/sweep/space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/words.h"
#include "framework/recipe/text.h"

namespace brim::sweep {
namespace {

constexpr int64_t kMaxValues = 1000;      // of a range that is parted
constexpr double kLargestInteger = 1e15;  // a double holds each one exactly

template <class... Args>
[[noreturn]] void refuse(const std::string& text, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw Error(Exit::kRecipe, "vary {}: {}", text, fmt::format(format, std::forward<Args>(args)...));
}

template <class Number>
std::optional<Number> number(std::string_view word) {
  Number value{};
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// The value at `key`; null where the recipe has none.
const recipe::Value* value_at(const recipe::Value& recipe, std::string_view key) {
  const recipe::Value* value = &recipe;
  for (size_t start = 0; start <= key.size();) {
    const size_t end = std::min(key.find('.', start), key.size());
    const auto* table = std::get_if<recipe::Table>(&value->data);
    if (table == nullptr) return nullptr;
    const auto found = table->entries.find(key.substr(start, end - start));
    if (found == table->entries.end()) return nullptr;
    value = &found->second;
    start = end + 1;
  }
  return value;
}

std::string number_text(const Parameter& range, double value) {
  if (range.is_integer) return std::to_string(static_cast<int64_t>(value));
  const double rounded = number<double>(fmt::format("{:.4g}", value)).value_or(value);
  return recipe::toml_number(std::clamp(rounded, range.low, range.high));
}

/// `share` of the way from the low end to the high one.
double between(const Parameter& range, double low, double high, double share) {
  if (!range.is_log) return low + share * (high - low);
  return low * std::pow(high / low, share);
}

std::vector<std::string> even_values(const Parameter& range, int64_t count) {
  std::vector<std::string> values;
  for (int64_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count - 1);
    double value = between(range, range.low, range.high, share);
    if (range.is_integer) value = std::round(value);
    std::string text = number_text(range, value);
    if (values.empty() || values.back() != text) values.push_back(std::move(text));
  }
  return values;
}

/// `body` is "LOW..HIGH" with ":log" or ":N" behind it.
void read_range(const std::string& text, std::string_view body, const recipe::Value& recipe,
                Parameter& range) {
  std::optional<int64_t> count;
  for (size_t colon; (colon = body.rfind(':')) != std::string_view::npos;) {
    const std::string_view word = body.substr(colon + 1);
    body = body.substr(0, colon);
    if (word == "log" && !range.is_log) {
      range.is_log = true;
    } else if (const auto read = number<int64_t>(word); read && !count) {
      count = read;
    } else {
      refuse(text, "expected ':log' or a number of values behind the range, found ':{}'", word);
    }
  }
  const size_t dots = body.find("..");
  const std::string_view low = body.substr(0, dots);
  const std::string_view high = body.substr(dots + 2);
  for (const auto& [word, end] : {std::pair{low, &range.low}, std::pair{high, &range.high}}) {
    const auto value = number<double>(word);
    if (!value || !std::isfinite(*value)) {
      refuse(text, "expected a range of two numbers as in 1e-3..1e-1:log, found '{}'", word);
    }
    *end = *value;
  }
  if (!(range.low < range.high)) {
    refuse(text, "expected the lower end first, found {} and {}", low, high);
  }
  if (range.is_log && range.low <= 0) {
    refuse(text, "expected both ends of a logarithmic range above 0, found {}", low);
  }
  if (!std::isfinite(range.is_log ? range.high / range.low : range.high - range.low)) {
    refuse(text, "expected a narrower range, found one that no number of 64 bits measures");
  }
  const recipe::Value* now = value_at(recipe, range.key);
  const bool is_written_so = number<int64_t>(low) && number<int64_t>(high);
  range.is_integer = now != nullptr && !std::holds_alternative<double>(now->data) && is_written_so;
  if (now != nullptr && std::holds_alternative<int64_t>(now->data) && !is_written_so) {
    refuse(text, "the key takes whole numbers: expected two as ends, found {} and {}", low, high);
  }
  if (range.is_integer && std::max(std::abs(range.low), std::abs(range.high)) > kLargestInteger) {
    refuse(text, "expected whole numbers of at most 15 digits");
  }
  if (!count) return;
  if (*count < 2 || *count > kMaxValues) {
    refuse(text, "expected from 2 to {} values, found {}", kMaxValues, *count);
  }
  range.values = even_values(range, *count);
}

void read_list(const std::string& text, std::string_view body, Parameter& list) {
  for (std::string& value : split_values(body)) {
    if (value.find_first_not_of(' ') == std::string::npos) {
      refuse(text, "value {} of the list is empty", list.values.size() + 1);
    }
    if (std::ranges::find(list.values, value) != list.values.end()) {
      refuse(text, "the value {} is given twice", value);
    }
    list.values.push_back(std::move(value));
  }
}

}  // namespace

Parameter parse_parameter(const std::string& text, const recipe::Value& recipe) {
  const size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == text.size()) {
    throw Error(Exit::kRecipe,
                "vary '{}': expected a key and its values, as in model.name=resnet18,resnet34 or "
                "optimizer.learning_rate=1e-3..1e-1:log",
                text);
  }
  Parameter parameter;
  parameter.key = text.substr(0, sign);
  const std::string_view body = std::string_view(text).substr(sign + 1);
  if (body.find_first_of("\"'[{,") == std::string_view::npos &&
      body.find("..") != std::string_view::npos) {
    read_range(text, body, recipe, parameter);
  } else {
    read_list(text, body, parameter);
  }
  return parameter;
}

std::vector<Parameter> parse_space(const std::vector<std::string>& texts,
                                   const recipe::Value& recipe) {
  std::vector<Parameter> space;
  for (const std::string& text : texts) {
    Parameter parameter = parse_parameter(text, recipe);
    if (parameter.key == "device.select") {
      refuse(text, "a sweep chooses each trial's device itself; give --devices");
    }
    if (parameter.key.starts_with("sweep.")) {
      refuse(text, "that says how the sweep searches; vary keys of the recipe");
    }
    if (std::ranges::find(space, parameter.key, &Parameter::key) != space.end()) {
      refuse(text, "{} is given twice; list all its values in one", parameter.key);
    }
    space.push_back(std::move(parameter));
  }
  return space;
}

std::string setting_at(const Parameter& parameter, double place) {
  if (!parameter.is_range()) {
    const auto count = static_cast<double>(parameter.values.size());
    const auto index = static_cast<size_t>(std::min(place * count, count - 1));
    return parameter.key + "=" + parameter.values[index];
  }
  double value = between(parameter, parameter.low, parameter.high, place);
  if (parameter.is_integer) {  // each whole number is as wide as the next
    value = std::floor(between(parameter, parameter.low, parameter.high + 1, place));
    value = std::clamp(value, parameter.low, parameter.high);
  }
  return parameter.key + "=" + number_text(parameter, value);
}

int64_t count_combinations(std::span<const Parameter> space, int64_t most) {
  int64_t count = 1;
  for (const Parameter& parameter : space) {
    if (parameter.is_range()) return most;
    count *= static_cast<int64_t>(parameter.values.size());
    if (count >= most) return most;
  }
  return count;
}

std::vector<std::string> combination(std::span<const Parameter> space, int64_t index) {
  std::vector<std::string> settings(space.size());
  for (size_t i = space.size(); i-- > 0;) {
    const auto size = static_cast<int64_t>(space[i].values.size());
    settings[i] = space[i].key + "=" + space[i].values[static_cast<size_t>(index % size)];
    index /= size;
  }
  return settings;
}

}  // namespace brim::sweep
