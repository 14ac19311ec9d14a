#include "framework/recipe/lookup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <system_error>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/words.h"

namespace brim::recipe {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> shelves(std::string_view shelf) {
  std::error_code ignored;  // without /proc the program's folder is unknown
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<fs::path> result = {shelf};
  if (!program.empty()) {
    result.push_back(program.parent_path() / shelf);
    result.push_back(program.parent_path() / "share" / "brim" / shelf);  // where it is installed
  }
  result.push_back(fs::path(BRIM_SOURCE_DIR) / shelf);
  return result;
}

/// Names as find_file() takes them: without ".toml", with the folder below the shelf.
std::set<std::string> names_on(const std::vector<fs::path>& folders) {
  std::set<std::string> names;
  for (const fs::path& folder : folders) {
    std::error_code ignored;  // a shelf that isn't there holds nothing
    for (fs::recursive_directory_iterator it(folder, ignored), end; it != end;
         it.increment(ignored)) {
      if (it->path().extension() != ".toml") continue;
      names.insert(it->path().lexically_relative(folder).replace_extension().generic_string());
    }
  }
  return names;
}

}  // namespace

fs::path find_file(const std::string& name, std::string_view shelf, const fs::path& folder) {
  if (name.empty()) throw Error(Exit::kRecipe, "expected the name of a recipe, found ''");
  const std::vector<fs::path> folders = shelves(shelf);
  const bool has_shelf = name.starts_with(fmt::format("{}/", shelf));
  std::vector<fs::path> starts = {folder, ""};
  for (const fs::path& place : folders) {
    starts.push_back(place);
    if (has_shelf) starts.push_back(place.parent_path());
  }
  std::vector<fs::path> candidates;
  for (const fs::path& start : starts) {
    candidates.push_back((start / name).lexically_normal());
    candidates.push_back((start / (name + ".toml")).lexically_normal());
  }
  bool is_folder = false;
  for (const fs::path& candidate : candidates) {
    std::error_code ignored;
    const auto type = fs::status(candidate, ignored).type();
    if (type == fs::file_type::directory) is_folder = true;
    if (fs::exists(fs::file_status(type)) && type != fs::file_type::directory) return candidate;
  }
  if (is_folder) throw Error(Exit::kRecipe, "{}: expected a regular file, found a folder", name);

  const std::set<std::string> names = names_on(folders);
  std::string message = fmt::format("{}: no such file, and none of that name in {}/", name, shelf);
  const std::string near = nearest(fs::path(name).replace_extension().string(),
                                   std::vector<std::string_view>(names.begin(), names.end()));
  message += near.empty() ? "." : fmt::format("; did you mean '{}'?", near);
  if (!names.empty()) message += fmt::format(" {}/ holds: {}", shelf, fmt::join(names, ", "));
  throw Error(Exit::kRecipe, message);
}

std::set<std::string> bundled_names(std::string_view shelf) {
  std::vector<fs::path> folders = shelves(shelf);
  folders.erase(folders.begin());  // the current folder's are the user's
  return names_on(folders);
}

}  // namespace brim::recipe
