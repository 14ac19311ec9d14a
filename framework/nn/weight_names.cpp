#include "framework/nn/weight_names.h"

#include <cctype>

namespace brim::nn {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// What '#' and '*' stand for in `name`; nullopt where the pattern doesn't fit.
std::optional<std::vector<std::string_view>> match(std::string_view pattern,
                                                   std::string_view name) {
  std::vector<std::string_view> found;
  size_t at = 0;
  for (const char c : pattern) {
    const size_t start = at;
    if (c == '*') {
      at = name.size();
    } else if (c == '#') {
      while (at < name.size() && is_digit(name[at])) ++at;
    } else {
      if (at == name.size() || name[at] != c) return std::nullopt;
      ++at;
      continue;
    }
    if (at == start) return std::nullopt;
    found.push_back(name.substr(start, at - start));
  }
  if (at != name.size()) return std::nullopt;
  return found;
}

std::string fill(std::string_view pattern, const std::vector<std::string_view>& values) {
  std::string name;
  auto next = values.begin();
  for (const char c : pattern) {
    if (c == '#' || c == '*') {
      name += *next++;
    } else {
      name += c;
    }
  }
  return name;
}

std::optional<Renamed> rename(std::string_view name, const std::vector<NameRule>& rules,
                              std::string NameRule::*from, std::string NameRule::*to) {
  for (const NameRule& rule : rules) {
    if (const auto values = match(rule.*from, name)) return Renamed{fill(rule.*to, *values), &rule};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Renamed> to_theirs(std::string_view name, const std::vector<NameRule>& rules) {
  return rename(name, rules, &NameRule::ours, &NameRule::theirs);
}

std::optional<Renamed> to_ours(std::string_view name, const std::vector<NameRule>& rules) {
  return rename(name, rules, &NameRule::theirs, &NameRule::ours);
}

}  // namespace brim::nn
