#include "framework/recipe/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/words.h"
#include "framework/recipe/key_list.h"
#include "framework/recipe/registry.h"
#include "framework/recipe/text.h"

namespace brim::recipe {
namespace {

const Table kNoTable;

/// "the string "x"", "the integer 5", "a table".
std::string found_text(const Value& value) {
  if (const auto* v = std::get_if<bool>(&value.data)) return "the boolean " + value_text(*v);
  if (const auto* v = std::get_if<int64_t>(&value.data)) return "the integer " + value_text(*v);
  if (const auto* v = std::get_if<double>(&value.data)) return "the number " + value_text(*v);
  if (const auto* v = std::get_if<std::string>(&value.data)) return "the string " + toml_string(*v);
  return std::holds_alternative<Array>(value.data) ? "an array" : "a table";
}

class Reader final : public Fields {
 public:
  Reader(const Value& document, Config& config) : config_(config) {
    frames_.push_back(
        {"", std::get_if<Table>(&document.data), document.location, false, {}, {}, {}});
    if (frames_.back().table == nullptr) frames_.back().table = &kNoTable;
  }

  std::vector<Problem> finish() {
    report_unknown();
    return std::move(problems_);
  }

  void component(std::string_view selector, ComponentSlot& slot, std::string_view doc) override;

  void renamed(std::string_view old_name, std::string_view name) override {
    Frame& frame = frames_.back();
    frame.known.emplace(old_name);
    const auto& entries = frame.table->entries;
    const auto old_entry = entries.find(old_name), entry = entries.find(name);
    if (old_entry == entries.end()) return;
    const Value& value = old_entry->second;
    if (entry != entries.end() && entry->second.layer == value.layer) {
      problem(value.key_location, fmt::format("'{}' {} is the deprecated name of '{}', which is "
                                              "given too; remove it",
                                              old_name, place(), name));
    } else {
      log::warning("{}: '{}' {} is deprecated; use '{}'", value.key_location.text(), old_name,
                   place(), name);
    }
    if (entry == entries.end() || entry->second.layer < value.layer) {
      frame.renamed.emplace(name, &value);
    }
  }

 protected:
  void visit(const Field& field, bool& v) override {
    if (const Value* value = find(field)) take(field, *value, "true or false", v);
  }
  void visit(const Field& field, int64_t& v) override {
    if (const Value* value = find(field)) take_number(field, *value, v);
  }
  void visit(const Field& field, double& v) override {
    if (const Value* value = find(field)) take_number(field, *value, v);
  }
  void visit(const Field& field, std::string& v) override {
    const Value* value = find(field);
    if (value == nullptr || !take(field, *value, "a string", v)) return;
    refuse_empty(field, *value, v.empty());
  }
  void visit(const Field& field, std::filesystem::path& v) override {
    const Value* value = find(field);
    if (value == nullptr) {
      v = resolve(v, std::filesystem::current_path());
      return;
    }
    std::string text;
    if (!take(field, *value, "a path, as a string", text)) return;
    if (text.find('\0') != std::string::npos) {
      return mismatch(field, *value, "a path without NUL characters");
    }
    refuse_empty(field, *value, text.empty());
    v = resolve(text, value->folder);
  }
  void visit(const Field& field, std::vector<std::string>& v) override {
    take_list(field, "a list of strings", v, [&](const Value& element, std::string& out) {
      return take(field, element, "a string", out);
    });
  }
  void visit(const Field& field, std::vector<int64_t>& v) override {
    take_list(field, "a list of integers", v,
              [&](const Value& element, int64_t& out) { return take_number(field, element, out); });
  }
  void visit(const Field& field, std::vector<double>& v) override {
    take_list(field, "a list of numbers", v,
              [&](const Value& element, double& out) { return take_number(field, element, out); });
  }
  void visit(const Field& field, std::optional<int64_t>& v) override {
    take_auto_or(field, "an integer or \"auto\"", v, [&](const Value& value, int64_t& number) {
      return take_number(field, value, number);
    });
  }
  void visit(const Field& field, std::optional<bool>& v) override {
    take_auto_or(field, "true, false or \"auto\"", v, [&](const Value& value, bool& on) {
      return take(field, value, "true or false", on);
    });
  }
  void visit_choice(const Field& field, std::span<const std::string_view> words,
                    size_t& index) override {
    const Value* value = find(field);
    if (value == nullptr) return;
    if (const auto found = one_of(field, *value, words)) index = *found;
  }

  bool begin_section(const Field& field) override;
  void end_section() override {
    report_unknown();
    frames_.pop_back();
  }

 private:
  /// A component that was chosen in a table, for what other components leave behind there.
  struct Chosen {
    std::string selector;
    ComponentSlot* slot;
    const Value* value;  // of the selector; null where the default component was taken
  };
  /// A table whose fields are being visited.
  struct Frame {
    std::string path;  // "data.train"; "" for the root
    const Table* table;
    Location location;
    bool muted;  // the section is already reported as wrong, so nothing is missing in it
    std::set<std::string, std::less<>> known;
    std::vector<Chosen> components;
    std::map<std::string, const Value*, std::less<>> renamed;  // given by a deprecated name
    std::set<std::string, std::less<>> visited = {};  // as known, by the structs themselves
  };

  void problem(const Location& location, std::string message) {
    problems_.push_back({location, std::move(message)});
  }
  std::string place() const {
    const std::string& path = frames_.back().path;
    return path.empty() ? "at the top level" : fmt::format("in [{}]", path);
  }
  void mismatch(const Field& field, const Value& value, std::string_view expected) {
    problem(value.location, fmt::format("'{}' {}: expected {}, found {}", field.name, place(),
                                        expected, found_text(value)));
  }

  /// A component shares its table with the section that it was chosen in.
  void visit_once(std::string_view name) {
    Frame& frame = frames_.back();
    if (frame.visited.emplace(name).second) return;
    std::string whose;
    Location location = frame.location;
    if (!frame.components.empty()) {
      const auto& [selector, slot, value] = frame.components.back();
      whose = fmt::format(" of {} = {}", selector, toml_string(slot->selected()));
      if (value != nullptr) location = value->location;
    }
    problem(location, fmt::format("'{}' {}: expected one key of that name, found two; rename the "
                                  "key{} in its fields()",
                                  name, place(), whose));
  }

  /// The value of a key; null where the recipe leaves it out.
  const Value* find(const Field& field) {
    visit_once(field.name);
    Frame& frame = frames_.back();
    frame.known.emplace(field.name);
    const auto renamed = frame.renamed.find(field.name);
    if (renamed != frame.renamed.end()) return renamed->second;
    const auto found = frame.table->entries.find(field.name);
    if (found != frame.table->entries.end()) return &found->second;
    if (field.need == Need::kRequired && !frame.muted) {
      problem(frame.location,
              fmt::format("missing key '{}' {} ({})", field.name, place(), field.doc));
    }
    return nullptr;
  }

  template <class T>
  bool take(const Field& field, const Value& value, std::string_view expected, T& out) {
    const T* found = std::get_if<T>(&value.data);
    if (found == nullptr) {
      mismatch(field, value, expected);
      return false;
    }
    out = *found;
    return true;
  }

  void refuse_empty(const Field& field, const Value& value, bool empty) {
    if (empty && field.need == Need::kRequired) mismatch(field, value, "a text");
  }

  /// An integer is also a number; a number is no integer.
  template <class T>
  bool take_number(const Field& field, const Value& value, T& out) {
    constexpr bool kInteger = std::is_same_v<T, int64_t>;
    const auto* integer = std::get_if<int64_t>(&value.data);
    const auto* number = std::get_if<double>(&value.data);
    if (integer == nullptr && (kInteger || number == nullptr)) {
      mismatch(field, value, kInteger ? "an integer" : "a number");
      return false;
    }
    const double as_double = integer != nullptr ? static_cast<double>(*integer) : *number;
    const Range& range = field.range;
    const bool inside = (range.low_open ? as_double > range.low : as_double >= range.low) &&
                        (range.high_open ? as_double < range.high : as_double <= range.high);
    if (!std::isfinite(as_double) || !inside) {
      const std::string bounds = range_text(range);
      const std::string_view kind =
          kInteger ? "an integer" : (std::isfinite(as_double) ? "a number" : "a finite number");
      mismatch(field, value, fmt::format("{}{}{}", kind, bounds.empty() ? "" : " ", bounds));
      return false;
    }
    out = integer != nullptr ? static_cast<T>(*integer) : static_cast<T>(*number);
    return true;
  }

  template <class T, class Take>
  void take_auto_or(const Field& field, std::string_view expected, std::optional<T>& out,
                    Take take) {
    const Value* value = find(field);
    if (value == nullptr) return;
    const auto* word = std::get_if<std::string>(&value->data);
    if (word != nullptr && *word == "auto") return out.reset();
    if (!std::holds_alternative<T>(value->data)) return mismatch(field, *value, expected);
    T own{};
    if (take(*value, own)) out = own;
  }

  template <class T, class TakeElement>
  void take_list(const Field& field, std::string_view expected, std::vector<T>& out,
                 TakeElement take_element) {
    const Value* value = find(field);
    if (value == nullptr) return;
    const auto* array = std::get_if<Array>(&value->data);
    if (array == nullptr) return mismatch(field, *value, expected);
    std::vector<T> list;
    for (const Value& element : *array) {
      T item{};
      if (take_element(element, item)) list.push_back(std::move(item));
    }
    out = std::move(list);
  }

  /// The index of the word that `value` is; reports what is none.
  std::optional<size_t> one_of(const Field& field, const Value& value,
                               std::span<const std::string_view> words) {
    const auto* word = std::get_if<std::string>(&value.data);
    for (size_t i = 0; word != nullptr && i < words.size(); ++i) {
      if (words[i] == *word) return i;
    }
    std::string near;
    if (word != nullptr) near = nearest(*word, {words.begin(), words.end()});
    problem(value.location,
            fmt::format("'{}' {}: expected one of {}, found {}{}", field.name, place(),
                        words_text(words), found_text(value),
                        near.empty() ? "" : fmt::format("; did you mean {}?", toml_string(near))));
    return std::nullopt;
  }

  /// Parts that weren't chosen and would have taken a stray key.
  struct Owner {
    std::string components;  // "idx" or "tokens", quoted
    const Chosen* instead;
  };
  std::optional<Owner> owner(const std::string& name) const;
  /// The key that other tools call so: 'learning_rate' in its section, else with its section.
  std::string key_of_other_tools(const std::string& name) const;
  /// The one key of this name in the whole recipe, as "optimizer.learning_rate", or "".
  std::string key_elsewhere(const std::string& name) const;
  void report_unknown();

  Config& config_;  // whose keys are asked for where one stands in the wrong section
  std::vector<Frame> frames_;
  std::vector<Problem> problems_;
};

bool Reader::begin_section(const Field& field) {
  visit_once(field.name);
  Frame& outer = frames_.back();
  outer.known.emplace(field.name);
  Frame frame{fmt::format("{}{}{}", outer.path, outer.path.empty() ? "" : ".", field.name),
              &kNoTable,
              outer.location,
              outer.muted,
              {},
              {},
              {}};
  const auto found = outer.table->entries.find(field.name);
  if (found != outer.table->entries.end()) {
    const Value& value = found->second;
    if (const auto* table = std::get_if<Table>(&value.data)) {
      frame.table = table;
      frame.location = value.location;
    } else {
      mismatch(field, value, fmt::format("a section [{}]", frame.path));
      frame.muted = true;
    }
  }
  frames_.push_back(std::move(frame));
  return true;
}

void Reader::component(std::string_view selector, ComponentSlot& slot, std::string_view doc) {
  const bool has_default = !slot.selected().empty();
  const Field field{selector, doc, {}, has_default ? Need::kOptional : Need::kRequired};
  const std::vector<std::string_view> names = slot.names();
  const Value* value = find(field);
  bool chosen = has_default;
  if (value != nullptr) {
    const auto index = one_of(field, *value, names);
    if (index) slot.select(names[*index]);
    chosen = index.has_value();
  }
  if (chosen) {
    frames_.back().components.push_back({std::string(selector), &slot, value});
    slot.component()->fields(*this);
    return;
  }
  // The component isn't known, so any component's keys may be right.
  for (const std::string_view name : names) {
    for (const std::string& key : key_list(*slot.make(name))) {
      frames_.back().known.insert(key.substr(0, key.find('.')));
    }
  }
}

std::optional<Reader::Owner> Reader::owner(const std::string& name) const {
  std::string path = name;  // relative to the frame looked at
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
    for (const Chosen& chosen : frame->components) {
      std::vector<std::string> components;
      for (const std::string_view other : chosen.slot->names()) {
        if (other == chosen.slot->selected()) continue;
        if (key_list(*chosen.slot->make(other)).contains(path)) {
          components.push_back(toml_string(other));
        }
      }
      if (!components.empty())
        return Owner{fmt::format("{}", fmt::join(components, " or ")), &chosen};
    }
    path = frame->path.substr(frame->path.rfind('.') + 1) + "." + path;
  }
  return std::nullopt;
}

std::string Reader::key_of_other_tools(const std::string& name) const {
  const std::string path(key_by_foreign_name(name)), section = frames_.back().path + ".";
  if (!key_list(config_).contains(path)) return "";
  return path.starts_with(section) ? path.substr(section.size()) : path;
}

std::string Reader::key_elsewhere(const std::string& name) const {
  std::string found;
  for (const std::string& path : key_list(config_)) {
    if (!path.ends_with("." + name)) continue;
    if (!found.empty()) return "";
    found = path;
  }
  return found;
}

void Reader::report_unknown() {
  const Frame& frame = frames_.back();
  for (const auto& [name, value] : frame.table->entries) {
    if (frame.known.contains(name)) continue;
    const std::string_view kind = std::holds_alternative<Table>(value.data) ? "section" : "key";
    std::string hint;
    if (const auto other = owner(name)) {
      const auto& [selector, slot, by] = *other->instead;
      const std::string where = by == nullptr ? "the default" : by->location.text();
      if (by != nullptr && value.layer < by->layer) {
        log::info("{}: {} '{}' {} is dropped: it belongs to {} = {}, and {} chose {}",
                  value.key_location.text(), kind, name, place(), selector, other->components,
                  where, toml_string(slot->selected()));
        continue;
      }
      hint = fmt::format("; it belongs to {} = {}, here it is {} ({})", selector, other->components,
                         toml_string(slot->selected()), where);
    }
    if (hint.empty()) {
      std::string near = key_of_other_tools(name);
      if (near.empty()) near = nearest(name, {frame.known.begin(), frame.known.end()});
      if (near.empty()) near = key_elsewhere(name);
      if (!near.empty()) {
        hint = fmt::format("; did you mean '{}'?", near);
      } else if (!frame.known.empty()) {
        hint = fmt::format("; known there: {}", fmt::join(frame.known, ", "));
      }
    }
    problem(value.key_location, fmt::format("unknown {} '{}' {}{}", kind, name, place(), hint));
  }
}

}  // namespace

void read(const Value& document, Config& config) {
  Reader reader(document, config);
  config.fields(reader);
  std::vector<Problem> problems = reader.finish();
  if (!problems.empty()) throw_problems(std::move(problems));
}

}  // namespace brim::recipe
