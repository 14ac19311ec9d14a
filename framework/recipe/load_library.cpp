#include "framework/recipe/load_library.h"

#include <dlfcn.h>

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
      "{}: expected a library of parts for Brim, found one without {}(); begin its function "
      "that registers them with BRIM_LIBRARY (framework/recipe/library.h)",
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
  symbol<void (*)()>(library, "brim_register", file)();
}

/// Its parts are in the registries, which are the process's too.
fs::path& the_library() {
  static fs::path path;
  return path;
}

}  // namespace

bool load_library(const Value& document, std::string_view section, std::string_view key) {
  const Value* value = entry(entry(&document, section), key);
  const auto* name = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
  if (name == nullptr || name->empty()) return false;  // reading the recipe says what is wrong
  const fs::path path = resolve(*name, value->folder);
  if (path == the_library()) return false;
  const std::string place = fmt::format("{}: [{}] {}", value->location.text(), section, key);
  if (!the_library().empty()) {
    throw Error(Exit::kRecipe, "{}: {}: expected {}, which this process has loaded already", place,
                path.string(), the_library().string());
  }
  load(path, place);
  the_library() = path;
  return true;
}

const fs::path& loaded_library() { return the_library(); }

}  // namespace brim::recipe
