// A recipe as layered TOML, before any config struct has read it: a tree of values, each with the
// place that wrote it. Layers, later over earlier: extends < recipe < --config < --set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace brim::recipe {

/// Where a value was written: a file with 1-based line and column, or "--set", "--vary" (line 0).
struct Location {
  std::string source;
  int64_t line = 0;
  int64_t column = 0;

  /// "resnet50.toml:12:9" or "--set optimizer.learning_rate=x".
  std::string text() const;
};

/// Who wrote a value. Code that a run or a bench file names by itself may be a stranger's.
enum class Author { kUser, kRun, kBenchFile };

struct Value;
using Array = std::vector<Value>;
struct Table {
  std::map<std::string, Value, std::less<>> entries;
};

struct Value {
  std::variant<bool, int64_t, double, std::string, Array, Table> data;
  Location location;             // of the value
  Location key_location;         // of its key, for "unknown key"
  std::filesystem::path folder;  // relative paths in this value start here
  Author author = Author::kUser;
  int layer = 0;  // 0 for the lowest; of a table: the last layer that wrote into it
};

/// One problem with a recipe.
struct Problem {
  Location location;
  std::string message;
};

/// Throws one Error(Exit::kRecipe) listing all of them, ordered by place.
[[noreturn]] void throw_problems(std::vector<Problem> problems);

struct LayerOptions {
  std::vector<std::filesystem::path> configs = {};  // --config, in order
  std::vector<std::string> sets = {};               // --set "a.b=value", in order
  bool is_of_run = false;                // the recipe is a run's, whatever else its folder holds
  bool trusts_library = false;           // --trust-library: all of it counts as the user's
  const Value* defaults = nullptr;       // the machine's: below all others
  std::vector<std::string> varied = {};  // a trial's settings, as `sets` and above them
  std::string varied_by = "--vary";      // what problems call them by
};

/// Reads and merges all layers: tables key by key, anything else is replaced. `name` is a path, or
/// a file under recipes/ (".toml" may be left out); a --config is a path or a file under configs/.
/// `extends` is looked up as `name` is, first of all in the folder of the file that wrote it. All
/// --set together are one layer, with what varies; `--set a.b=bf16` takes what is no TOML value as
/// a string. Throws Error(kRecipe) with the problems of all layers: missing or empty file, syntax,
/// duplicate key, not UTF-8, nesting too deep, a loop of `extends`, a --set without '=' or with a
/// bad key.
Value load(const std::string& name, const LayerOptions& options);

/// One layer from text that is not a file. No `extends`. Relative paths start from the current
/// folder. Throws as load() does.
Value parse(const std::string& text, const std::string& source_name, Author author = Author::kUser);

/// Where a key such as "batch.micro" was written; the recipe as a whole where it was left out. For
/// checks that see more than one key.
Location place_of(const Value& document, std::string_view key);

}  // namespace brim::recipe
