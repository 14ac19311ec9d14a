#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/recipe/document.h"
#include "framework/recipe/lookup.h"
#include "framework/recipe/parse_toml.h"
#include "framework/recipe/text.h"

namespace brim::recipe {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxChain = 32;  // files that extend one another

/// Puts `over` on top of `under`. A merged table keeps the place that first wrote it.
void merge(Value& under, Value&& over) {
  auto* low = std::get_if<Table>(&under.data);
  auto* high = std::get_if<Table>(&over.data);
  if (low == nullptr || high == nullptr) {
    under = std::move(over);
    return;
  }
  under.layer = over.layer;
  for (auto& [name, value] : high->entries) {
    const auto found = low->entries.find(name);
    if (found == low->entries.end()) {
      low->entries.emplace(name, std::move(value));
    } else {
      merge(found->second, std::move(value));
    }
  }
}

bool is_bare_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

/// Whether a run has written into the folder.
bool holds_run(const fs::path& folder) {
  constexpr std::array kOfRuns = {"run.json", "metrics.jsonl", "checkpoints/latest"};
  std::error_code ignored;
  return std::ranges::any_of(kOfRuns,
                             [&](const char* name) { return fs::exists(folder / name, ignored); });
}

class Loader {
 public:
  explicit Loader(bool trusts_library) : trusts_library_(trusts_library) {}

  void add_file(const fs::path& path, bool is_of_run) { extend_and_add(path, {}, is_of_run); }

  void add_defaults(Value defaults) {
    mark_layer(defaults, layer_++);
    add(std::move(defaults));
  }

  void add_sets(const LayerOptions& options) {
    for (const std::string& set : options.sets) add_set("--set", set);
    for (const std::string& set : options.varied) add_set(options.varied_by, set);
    if (!options.sets.empty() || !options.varied.empty()) ++layer_;
  }

  Value take() {
    if (!problems_.empty()) throw_problems(std::move(problems_));
    return std::move(*merged_);
  }

 private:
  void problem(Location location, std::string message) {
    problems_.push_back({std::move(location), std::move(message)});
  }

  void add(Value&& value) {
    if (merged_) {
      merge(*merged_, std::move(value));
    } else {
      merged_ = std::move(value);
    }
  }

  /// Adds what `path` extends, then `path`. `chain` holds the files on the way to here. What a
  /// run's recipe extends is the run's too.
  void extend_and_add(const fs::path& path, std::vector<fs::path> chain, bool is_of_run) {
    const std::string source = path.string();
    const std::string text = read_file(path, Exit::kRecipe, kMaxFileBytes);
    const fs::path folder = fs::absolute(path).parent_path().lexically_normal();
    is_of_run = !trusts_library_ && (is_of_run || holds_run(folder));
    const Author author = is_of_run ? Author::kRun : Author::kUser;
    auto value = parse_toml(text, {source, folder, 0, author}, problems_);
    if (!value) return;
    auto& entries = std::get<Table>(value->data).entries;
    if (const auto found = entries.find("extends"); found != entries.end()) {
      chain.push_back(path);
      extend(found->second, chain, is_of_run);
      entries.erase(found);
    }
    mark_layer(*value, layer_++);
    add(std::move(*value));
  }

  void extend(const Value& value, const std::vector<fs::path>& chain, bool is_of_run) {
    const auto* target = std::get_if<std::string>(&value.data);
    if (target == nullptr || target->empty()) {
      return problem(value.location, "'extends': expected the path of a recipe, as a string");
    }
    fs::path next;
    try {
      next = find_file(*target, "recipes", chain.back().parent_path());
    } catch (const Error& error) {
      return problem(value.location, fmt::format("'extends': {}", error.what()));
    }
    std::error_code code;
    std::string way;
    for (const fs::path& file : chain) way += file.string() + " -> ";
    for (const fs::path& file : chain) {
      if (fs::equivalent(file, next, code)) {
        return problem(value.location, fmt::format("'extends': loop: {}{}", way, next.string()));
      }
    }
    if (chain.size() >= kMaxChain) {
      return problem(value.location, fmt::format("'extends': more than {} files", kMaxChain));
    }
    extend_and_add(next, chain, is_of_run);
  }

  static void mark_layer(Value& value, int layer) {
    value.layer = layer;
    if (auto* table = std::get_if<Table>(&value.data)) {
      for (auto& [name, child] : table->entries) mark_layer(child, layer);
    }
  }

  void add_set(const std::string& option, const std::string& set) {
    const Location location{option + " " + set};
    if (std::any_of(set.begin(), set.end(), [](unsigned char c) { return std::iscntrl(c) != 0; })) {
      return problem({option}, "expected one line without control characters");
    }
    const size_t equals = set.find('=');
    if (equals == std::string::npos) return problem(location, "expected section.key=value");
    if (equals + 1 == set.size()) {
      return problem(location, "expected a value after '=', found none; an empty string is '\"\"'");
    }
    std::vector<std::string> keys;
    for (size_t start = 0; start <= equals;) {
      const size_t end = std::min(set.find('.', start), equals);
      keys.push_back(set.substr(start, end - start));
      start = end + 1;
    }
    if (keys.size() > 32 || !std::all_of(keys.begin(), keys.end(), is_bare_key)) {
      return problem(location, fmt::format("'{}' is no key: expected letters, digits, '_' and '-', "
                                           "with a dot between section and key",
                                           set.substr(0, equals)));
    }
    auto value = set_value(set.substr(equals + 1), location);
    if (!value) return;
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
      Value table{.data = Table{},
                  .location = location,
                  .key_location = location,
                  .folder = value->folder,
                  .layer = layer_};
      std::get<Table>(table.data).entries.emplace(*key, std::move(*value));
      value = std::move(table);
    }
    add(std::move(*value));
  }

  static bool is_too_large(const std::string& text) {
    const std::string_view digits = std::string_view(text).substr(text.starts_with('+') ? 1 : 0);
    int64_t ignored = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stop, code] = std::from_chars(digits.data(), end, ignored);
    return stop == end && code == std::errc::result_out_of_range;
  }

  /// A TOML value; what is none is a string, unless its first character promises another kind.
  std::optional<Value> set_value(const std::string& text, const Location& location) {
    const Origin origin{location.source, fs::current_path()};
    std::vector<Problem> found;
    auto parsed = parse_toml("value = " + text, origin, found);
    if (!parsed && is_too_large(text)) {
      problem(location, "the integer is out of range: expected at most 64 bits");
      return std::nullopt;
    }
    if (!parsed && std::string_view("[{\"'").find(text.front()) == std::string_view::npos) {
      found.clear();
      parsed = parse_toml("value = " + toml_string(text), origin, found);
    }
    if (!parsed) {
      problem(location, found.front().message);
      return std::nullopt;
    }
    Value value = std::move(std::get<Table>(parsed->data).entries.at("value"));
    mark_place(value, location);
    mark_layer(value, layer_);
    return value;
  }

  static void mark_place(Value& value, const Location& location) {
    value.location = value.key_location = location;
    if (auto* table = std::get_if<Table>(&value.data)) {
      for (auto& [name, child] : table->entries) mark_place(child, location);
    } else if (auto* array = std::get_if<Array>(&value.data)) {
      for (Value& child : *array) mark_place(child, location);
    }
  }

  std::optional<Value> merged_;
  std::vector<Problem> problems_;
  int layer_ = 0;
  bool trusts_library_ = false;
};

}  // namespace

Value load(const std::string& name, const LayerOptions& options) {
  Loader loader(options.trusts_library);
  const fs::path recipe = find_file(name, "recipes");
  if (options.defaults != nullptr) loader.add_defaults(*options.defaults);
  loader.add_file(recipe, options.is_of_run);
  for (const fs::path& config : options.configs) {
    loader.add_file(find_file(config.string(), "configs"), false);
  }
  loader.add_sets(options);
  Value document = loader.take();
  document.location = {recipe.string()};
  return document;
}

}  // namespace brim::recipe
