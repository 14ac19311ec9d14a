#include "framework/cli/self_launch.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/device/choice.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/gpus/device_list.h"
#include "framework/launch/launcher.h"

namespace brim::cli {
namespace {

/// Tells the ranks that this program starts what kind of device is theirs, where the recipe names
/// them all.
constexpr const char* kRankDevice = "BRIM_RANK_DEVICE";

/// Runs this program once for each of the selection's ranks, where they are several, and returns
/// the exit status; nullopt where this process is to train.
std::optional<int> launch_ranks(const device::Selection& selection,
                                std::span<char* const> arguments) {
  if (selection.ranks < 2) return std::nullopt;
  const bool is_cpu = selection.where == device::Selection::Where::kCpu;
  ::setenv(kRankDevice, is_cpu ? "cpu" : "cuda", 1);
  launch::LaunchOptions launch;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe")};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
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

}  // namespace

device::Selection place(device::DeviceConfig& config) {
  using Where = device::Selection::Where;
  // A run on the CPU need not wait for the driver.
  const bool is_cpu =
      device::parse_device_list(config.select).kind == device::DeviceList::Kind::kCpu;
  device::Selection selection =
      device::select_devices(config, is_cpu ? device::Census{} : device::take_census(),
                             std::getenv("CUDA_VISIBLE_DEVICES"));
  for (const std::string& line : selection.warnings) log::warning("{}", line);
  for (const std::string& line : selection.notes) log::info("{}", line);
  if (!selection.visible.empty()) {
    ::setenv("CUDA_VISIBLE_DEVICES", selection.visible.c_str(), 1);
    if (!selection.is_auto) config.select = "cuda";
  }
  if (selection.where == Where::kCpu) config.select = "cpu";
  return selection;
}

std::optional<int> start_ranks(const device::DeviceConfig& config, std::span<char* const> arguments,
                               RankDevice& placement) {
  placement.ranks = distributed::read_ranks();
  device::DeviceConfig placed = config;
  const char* own = std::getenv(kRankDevice);
  if (!placement.ranks.launcher.empty() && own != nullptr) {
    placed.select = own;
  } else if (!placement.ranks.launcher.empty()) {
    require_one_device(placed);
  } else {
    placement.selection = place(placed);
    if (const auto status = launch_ranks(placement.selection, arguments)) return status;
  }
  placement.device =
      device::choose_device(placed, placement.ranks.local_rank, placement.ranks.local_world);
  if (placement.selection.where == device::Selection::Where::kGpus && placement.device.is_cpu()) {
    log::warning("CUDA cannot use it: {}; training on the CPU", device::cuda().why_not);
  }
  return std::nullopt;
}

}  // namespace brim::cli
