#include "framework/cli/self_launch.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/device/choice.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/gpus/device_list.h"
#include "framework/launch/launcher.h"

namespace brim::cli {
namespace {

/// Tells the ranks that this program starts what kind of device is theirs, where the recipe names
/// them all.
constexpr const char* kRankDevice = "BRIM_RANK_DEVICE";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

int launch_ranks(const Placement& placement, const device::DeviceConfig& placed,
                 std::span<char* const> arguments, int former_starts) {
  const bool is_cpu = placement.selection.where == device::Selection::Where::kCpu;
  const bool is_one = placement.selection.ranks == 1;
  ::setenv(kRankDevice, is_one ? placed.select.c_str() : is_cpu ? "cpu" : "cuda", 1);
  launch::LaunchOptions launch;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe")};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  launch.ranks_per_node = placement.selection.ranks;
  launch.former_starts = former_starts;
  return launch::launch(launch);
}

void say_reason(const site::StopReason& reason) {
  log::warning("{}: this run saves its state and leaves its devices", reason.why);
}

/// Whether the ranks, which have stopped by themselves, have yielded their devices. They may have
/// ended before the watch looked again.
bool have_yielded(const site::Watch& watch) {
  if (watch.cause() != site::StopCause::kNone) return watch.cause() == site::StopCause::kYields;
  const site::StopReason reason = watch.look(device::take_census().gpus);
  if (reason.cause != site::StopCause::kNone) say_reason(reason);
  return reason.cause == site::StopCause::kYields;
}

/// Places the run. Where it is of several ranks, or may have to leave its devices to others for a
/// while, runs this program once for each rank, again and again until the run has ended, and
/// returns the exit status; nullopt where this process is to train.
std::optional<int> launch_placed(device::DeviceConfig& config, const std::string& run,
                                 std::span<char* const> arguments, Placement& placement) {
  const device::DeviceConfig asked = config;
  const char* const variable = std::getenv(kVisible);
  const std::optional<std::string> visible =
      variable == nullptr ? std::nullopt : std::optional<std::string>(variable);
  for (int starts = 0;; ++starts) {
    config = asked;
    if (visible) {
      ::setenv(kVisible, visible->c_str(), 1);
    } else {
      ::unsetenv(kVisible);
    }
    placement = place(config, run, /*is_saved=*/starts > 0);
    const bool comes_back = site::limits().has_yields(placement.devices) && !is_held_by_parent();
    if (placement.selection.ranks < 2 && !comes_back) return std::nullopt;
    if (starts > 0 && stop_requested()) return static_cast<int>(Exit::kStopped);
    const site::Watch watch(site::limits(), placement.devices, say_reason);
    const int status = launch_ranks(placement, config, arguments, starts);
    const bool has_stopped = status == static_cast<int>(Exit::kStopped) && !stop_requested();
    if (!has_stopped || !have_yielded(watch) || !comes_back) return status;
    placement = {};
    log::info("the run continues when the rule allows it");
  }
}

void require_one_device(const device::DeviceConfig& config) {
  if (device::parse_device_list(config.select).ranks < 2) return;
  throw Error(Exit::kRecipe,
              "device '{}': a launcher has started this rank already; name one device or none, and "
              "choose GPUs by CUDA_VISIBLE_DEVICES",
              config.select);
}

}  // namespace

std::optional<int> start_ranks(device::DeviceConfig& config, const std::string& run,
                               std::span<char* const> arguments, RankDevice& here) {
  here.ranks = distributed::read_ranks();
  device::DeviceConfig placed = config;
  const char* own = std::getenv(kRankDevice);
  const bool is_launched = !here.ranks.launcher.empty();
  const bool is_own = is_launched && own != nullptr;
  if (is_own) {
    placed.select = own;
  } else if (is_launched) {
    require_one_device(placed);
  } else if (const auto status = launch_placed(placed, run, arguments, here.placement)) {
    return status;
  }
  here.device = device::choose_device(placed, here.ranks.local_rank, here.ranks.local_world);
  if (here.placement.selection.where == device::Selection::Where::kGpus && here.device.is_cpu()) {
    log::warning("CUDA cannot use it: {}; training on the CPU", device::cuda().why_not);
  }
  if (is_launched && !is_own) here.placement = admit_rank(here.device, run);
  site::limits().bound_memory(config, devices_of(here.device));
  here.watch.emplace(site::limits(), devices_of(here.device), [is_own](const auto& reason) {
    if (!is_own) say_reason(reason);  // the launching process does
    request_stop();
  });
  return std::nullopt;
}

}  // namespace brim::cli
