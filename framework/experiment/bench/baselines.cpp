#include "framework/experiment/bench/baselines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/words.h"

namespace brim::experiment {
namespace fs = std::filesystem;
namespace {

const fs::path kFolder = "benchmarks/baselines";

std::set<std::string> names() {
  std::set<std::string> result;
  std::error_code ignored;  // a folder that isn't there holds none
  for (fs::directory_iterator it(kFolder, ignored), end; it != end; it.increment(ignored)) {
    if (it->path().extension() == ".json") result.insert(it->path().stem().string());
  }
  return result;
}

}  // namespace

fs::path baseline_path(const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos) {
    throw Error(Exit::kRecipe,
                "baseline '{}': expected a plain name without '/' or a leading dot, such as "
                "resnet50_h200",
                name);
  }
  return kFolder / (name + ".json");
}

fs::path find_baseline(const std::string& name) {
  fs::path path = baseline_path(name);
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  const std::set<std::string> there = names();
  std::string message = fmt::format("baseline '{}': no such file: {}", name, path.string());
  const std::string near = nearest(name, std::vector<std::string_view>(there.begin(), there.end()));
  if (!near.empty()) message += fmt::format("; did you mean '{}'?", near);
  message += there.empty() ? "; make one by trainer bench --save-baseline " + name
                           : fmt::format("; there are: {}", fmt::join(there, ", "));
  throw Error(Exit::kRecipe, message);
}

}  // namespace brim::experiment
