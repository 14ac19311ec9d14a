#include "framework/cli/self_launch.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/device/device_list.h"
#include "framework/launch/launcher.h"

namespace brim::cli {
namespace {

constexpr std::string_view kOption = "--devices";

/// The arguments with `device` in the list's place.
std::vector<std::string> command(int argc, char** argv, const std::string& device) {
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe")};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kOption) {
      ++i;
    } else if (!word.starts_with(std::string(kOption) + "=")) {
      words.emplace_back(word);
    }
  }
  words.insert(words.end(), {std::string(kOption), device});
  return words;
}

}  // namespace

device::Selection place(device::DeviceConfig& config) {
  using Where = device::Selection::Where;
  device::Selection selection =
      device::select_devices(config, device::take_census(), std::getenv("CUDA_VISIBLE_DEVICES"));
  for (const std::string& line : selection.warnings) log::warning("{}", line);
  for (const std::string& line : selection.notes) log::info("{}", line);
  if (!selection.visible.empty()) {
    ::setenv("CUDA_VISIBLE_DEVICES", selection.visible.c_str(), 1);
    if (!selection.is_auto) config.select = "cuda";
  }
  if (selection.where == Where::kCpu) config.select = "cpu";
  return selection;
}

std::optional<int> launch_ranks(const device::Selection& selection, int argc, char** argv) {
  if (selection.ranks < 2) return std::nullopt;
  const bool is_cpu = selection.where == device::Selection::Where::kCpu;
  launch::LaunchOptions launch;
  launch.command = command(argc, argv, is_cpu ? "cpu" : "cuda");
  launch.ranks_per_node = selection.ranks;
  return launch::launch(launch);
}

void require_one_device(const device::DeviceConfig& config) {
  if (device::parse_device_list(config.select).ranks < 2) return;
  throw Error(Exit::kRecipe,
              "device '{}': a launcher has started this rank already; name one device or none, and "
              "choose GPUs by CUDA_VISIBLE_DEVICES",
              config.select);
}

}  // namespace brim::cli
