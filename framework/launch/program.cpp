#include "framework/launch/program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "framework/base/error.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code problem;
  return fs::is_regular_file(path, problem) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<fs::path> folders() {
  std::vector<fs::path> result = {"."};
  std::error_code problem;
  const fs::path self = fs::read_symlink("/proc/self/exe", problem);
  if (!problem) result.push_back(self.parent_path());
  const char* path = std::getenv("PATH");
  std::istringstream parts(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string part; std::getline(parts, part, ':');) result.emplace_back(part);
  return result;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.ends_with(".py")) {
    throw UsageError("{}: trainrun starts programs; for a script: trainrun … python3 {}", name,
                     name);
  }
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    throw UsageError("{}: {}", name,
                     fs::exists(name) ? "not a program that may be executed" : "no such program");
  }
  for (const fs::path& folder : folders()) {
    if (is_program(folder / name)) return folder / name;
  }
  throw UsageError("no program '{}': not in this folder, beside trainrun, or in PATH", name);
}

}  // namespace brim::launch
