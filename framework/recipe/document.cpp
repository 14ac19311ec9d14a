#include "framework/recipe/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "framework/base/error.h"
#include "framework/recipe/parse_toml.h"

#define TOML_ENABLE_FORMATTERS 0
// toml++ 3.3 asserts what it then reports as an error, such as a '[' at the end of a line.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

namespace brim::recipe {
namespace {

/// Copies the tree that toml++ made, dates left out as problems.
class Converter {
 public:
  Converter(const Origin& origin, std::vector<Problem>& problems)
      : origin_(origin), problems_(problems) {}

  Value convert(const toml::node& node, const Location& key) {
    Value value;
    value.location = place(node.source());
    value.key_location = key;
    value.folder = origin_.folder;
    value.layer = origin_.layer;
    if (const auto* table = node.as_table()) {
      Table entries;
      for (const auto& [name, child] : *table) {
        entries.entries.emplace(std::string(name.str()), convert(child, place(name.source())));
      }
      value.data = std::move(entries);
    } else if (const auto* array = node.as_array()) {
      Array elements;
      for (const auto& child : *array) elements.push_back(convert(child, place(child.source())));
      value.data = std::move(elements);
    } else if (const auto* text = node.as_string()) {
      value.data = text->get();
    } else if (const auto* integer = node.as_integer()) {
      value.data = integer->get();
    } else if (const auto* number = node.as_floating_point()) {
      value.data = number->get();
    } else if (const auto* boolean = node.as_boolean()) {
      value.data = boolean->get();
    } else {
      problems_.push_back({value.location, "no key takes a date or time; write text in quotes"});
    }
    return value;
  }

 private:
  Location place(const toml::source_region& region) const {
    return {origin_.source, region.begin.line, region.begin.column};
  }

  const Origin& origin_;
  std::vector<Problem>& problems_;
};

/// What toml++ says, in Brim's words where the issue is a common one.
Problem describe(const toml::parse_error& error, std::string_view text, const Origin& origin) {
  const auto at = error.source().begin;
  Problem problem{{origin.source, at.line, at.column}, ""};
  const std::string said(error.description());
  const size_t open = said.find('\'');
  const size_t close = said.rfind('\'');
  if (said.find("cannot redefine existing") != std::string::npos && open < close) {
    const std::string name = said.substr(open + 1, close - open - 1);
    // The error points behind the '='; the reader looks for the key.
    size_t start = 0;
    for (uint32_t line = 1; line < at.line; ++line) start = text.find('\n', start) + 1;
    const std::string_view line = text.substr(start, text.find('\n', start) - start);
    const size_t column = line.substr(0, at.column).rfind(name);
    if (column != std::string_view::npos) problem.location.column = int64_t(column) + 1;
    const bool section = said.find("existing table") != std::string::npos;
    problem.message = fmt::format("duplicate {} '{}'", section ? "section" : "key", name);
  } else if (said.find("utf-8") != std::string::npos) {
    problem.message = "expected UTF-8 text, found other bytes";
  } else if (said.starts_with("Error")) {
    problem.message = "syntax error" + said.substr(5);
  } else {
    problem.message = "syntax error: " + said;
  }
  return problem;
}

}  // namespace

std::string Location::text() const {
  return line == 0 ? source : fmt::format("{}:{}:{}", source, line, column);
}

void throw_problems(std::vector<Problem> problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.location.source, a.location.line, a.location.column) <
           std::tie(b.location.source, b.location.line, b.location.column);
  });
  std::string text;
  for (const Problem& problem : problems) {
    text +=
        fmt::format("{}{}: {}", text.empty() ? "" : "\n", problem.location.text(), problem.message);
  }
  throw Error(Exit::kRecipe, text);
}

std::optional<Value> parse_toml(std::string_view text, const Origin& origin,
                                std::vector<Problem>& problems) {
  if (const auto deep = find_deep_nesting(text, origin.source)) {
    problems.push_back({*deep, "nested too deep: a recipe needs no more than a few levels"});
    return std::nullopt;
  }
  try {
    const toml::table table = toml::parse(text);
    if (table.empty()) {
      problems.push_back({{origin.source}, "the file is empty: expected at least one key"});
      return std::nullopt;
    }
    const size_t before = problems.size();
    Value value = Converter(origin, problems).convert(table, {origin.source});
    value.location = {origin.source};
    if (problems.size() > before) return std::nullopt;
    return value;
  } catch (const toml::parse_error& error) {
    problems.push_back(describe(error, text, origin));
    return std::nullopt;
  }
}

Value parse(const std::string& text, const std::string& source_name) {
  std::vector<Problem> problems;
  auto value = parse_toml(text, {source_name, std::filesystem::current_path()}, problems);
  if (!value) throw_problems(std::move(problems));
  return std::move(*value);
}

Location place_of(const Value& document, std::string_view key) {
  const Value* value = &document;
  for (size_t start = 0; start < key.size();) {
    const size_t end = std::min(key.find('.', start), key.size());
    const auto* table = std::get_if<Table>(&value->data);
    if (table == nullptr) return document.location;
    const auto found = table->entries.find(key.substr(start, end - start));
    if (found == table->entries.end()) return document.location;
    value = &found->second;
    start = end + 1;
  }
  return value->location;
}

}  // namespace brim::recipe
