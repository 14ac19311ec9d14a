#include "framework/recipe/load_library.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "framework/base/error.h"
#include "framework/recipe/library.h"
#include "framework/recipe/text.h"

namespace brim::recipe {
namespace fs = std::filesystem;
namespace {

const Value* entry(const Value* table, std::string_view key) {
  const auto* entries = table == nullptr ? nullptr : std::get_if<Table>(&table->data);
  if (entries == nullptr) return nullptr;
  const auto found = entries->entries.find(key);
  return found == entries->entries.end() ? nullptr : &found->second;
}

/// The file that [section] key names, with its value; nullptr where there is none. Reading the
/// recipe says what is wrong with another kind of value.
const Value* find_path(const Value& document, std::string_view section, std::string_view key) {
  const Value* value = entry(entry(&document, section), key);
  const auto* name = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  return name == nullptr || name->empty() ? nullptr : value;
}

fs::path path_of(const Value& value) {
  return resolve(std::get<std::string>(value.data), value.folder);
}

/// Symbolic links followed, as far as there is something.
fs::path real_path(const fs::path& path) {
  std::error_code ignored;
  fs::path real = fs::weakly_canonical(path, ignored);
  return real.empty() ? path : real;
}

/// A run records the absolute path of a library that its user chose: what is relative, inside the
/// run's folder or another user's came with the run.
std::string why_untrusted(const Value& value) {
  if (value.author == Author::kUser) return "";
  if (value.author == Author::kBenchFile) return "which a bench file names";
  const fs::path written = std::get<std::string>(value.data);
  const fs::path file = real_path(path_of(value));
  const fs::path folder = real_path(value.folder);
  const auto differs = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  if (written.is_relative() || differs.first == folder.end()) return "which came with a run";
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return "";  // loading it says so
  if (status.st_uid == ::geteuid() || status.st_uid == 0) return "";
  return "which a run names and another user owns";
}

/// dlerror() names the file, and so do our messages.
std::string why_not(const fs::path& path) {
  const char* said = dlerror();
  std::string text = said == nullptr ? "it does not load" : said;
  const std::string prefix = path.string() + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

template <class Function>
Function symbol(void* library, const char* name, const std::string& file) {
  void* found = dlsym(library, name);
  if (found != nullptr) return reinterpret_cast<Function>(found);
  throw Error(
      Exit::kRecipe,
      "{}: expected a library of components for Brim, found one without {}(); begin its function "
      "that registers them with BRIM_LIBRARY (brim/recipe/library.h)",
      file, name);
}

void load(const fs::path& path, const std::string& place) {
  const std::string file = fmt::format("{}: {}", place, path.string());
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    throw Error(Exit::kRecipe, "{}: expected a shared library, found no such file", file);
  }
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string problem = library == nullptr ? why_not(path) : "";
  // A library made for another Brim may ask for what this one lacks: its version says more.
  if (library == nullptr) library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(Exit::kRecipe, "{}: expected a shared library, but: {}", file, problem);
  }
  const std::string abi = symbol<const char* (*)()>(library, "brim_abi", file)();
  if (abi != BRIM_ABI) {
    throw Error(Exit::kRecipe,
                "{}: compiled with the headers of {}, but this program is {}; build the library "
                "again with the Brim that this program was installed with",
                file, abi, BRIM_ABI);
  }
  if (!problem.empty()) {
    throw Error(Exit::kRecipe,
                "{}: {}. Link it with brim::library; this program has only the parts of Brim that "
                "it uses itself",
                file, problem);
  }
  expect_own_components();
  try {
    symbol<void (*)()>(library, "brim_register", file)();
  } catch (const Error& error) {
    throw Error(error.status(), "{}: {}", file, error.what());
  }
}

/// Its parts are in the registries, which are the process's too.
fs::path& the_library() {
  static fs::path path;
  return path;
}

}  // namespace

void require_trust(const Value& document, std::string_view section, std::string_view key) {
  const Value* value = find_path(document, section, key);
  const std::string why = value == nullptr ? "" : why_untrusted(*value);
  if (why.empty()) return;
  throw Error(Exit::kRecipe,
              "{}: [{}] {}: expected code that you chose, found {}, {}. It runs as soon as it is "
              "loaded: pass --trust-library if you trust its author",
              value->location.text(), section, key, path_of(*value).string(), why);
}

void require_own_command(const Value& document, std::string_view section, std::string_view key) {
  const Value* value = entry(entry(&document, section), key);
  const auto* words = value == nullptr ? nullptr : std::get_if<Array>(&value->data);
  if (words == nullptr || words->empty() || value->author == Author::kUser) return;
  throw Error(
      Exit::kRecipe,
      "{}: [{}] {}: expected a command that you chose, found one that came with a run. Pass "
      "--trust-library if you trust its author, or leave it out: --set {}.{}=[]",
      value->location.text(), section, key, section, key);
}

bool load_library(const Value& document, std::string_view section, std::string_view key) {
  const Value* value = find_path(document, section, key);
  if (value == nullptr) return false;
  const fs::path path = path_of(*value);
  if (path == the_library()) return false;
  require_trust(document, section, key);
  const std::string place = fmt::format("{}: [{}] {}", value->location.text(), section, key);
  if (!the_library().empty()) {
    throw Error(Exit::kRecipe,
                "{}: {}: expected {}, which this process has loaded already; give each library a "
                "command of its own, such as trainer bench",
                place, path.string(), the_library().string());
  }
  load(path, place);
  the_library() = path;
  return true;
}

const fs::path& loaded_library() { return the_library(); }

}  // namespace brim::recipe
