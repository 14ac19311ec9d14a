#include "framework/launch/machine.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "framework/base/words.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

int device_files(const fs::path& folder) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) continue;
    if (name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos) ++count;
  }
  return count;
}

/// Entries of CUDA_VISIBLE_DEVICES; CUDA stops reading at the first that names nothing.
int named_devices(const std::string& list) {
  int count = 0;
  for (std::string_view entry : split(list)) {
    entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
    if (entry.empty() || entry[0] == '-') break;
    ++count;
  }
  return count;
}

}  // namespace

int visible_gpus(const fs::path& root) {
  const int present = device_files(root / "dev");
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return present;
  // A MIG instance is named, and a GPU may hold several.
  const bool has_slices = std::string_view(list).find("MIG-") != std::string_view::npos;
  const int named = named_devices(list);
  return present == 0 ? 0 : has_slices ? named : std::min(present, named);
}

}  // namespace brim::launch
