#include "framework/cli/placement.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/device/choice.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/gpus/device_list.h"
#include "framework/distributed/ranks.h"

namespace brim::cli {
namespace {

using device::Selection;

constexpr std::chrono::seconds kYieldPoll{2};

/// nullopt where the devices are not to be had while training yields them.
std::optional<Selection> select(const device::DeviceConfig& config, const device::Census& census,
                                const std::string& yields) {
  try {
    return device::select_devices(config, census, std::getenv("CUDA_VISIBLE_DEVICES"));
  } catch (const Error& error) {
    if (error.status() != Exit::kResource || yields.empty()) throw;
    return std::nullopt;
  }
}

/// Where NVML shows nothing, CUDA alone knows whether there is a GPU.
site::Devices devices_of_selection(const Selection& selection, const device::DeviceList& list,
                                   const device::Census& census) {
  const auto ranks = static_cast<size_t>(selection.ranks);
  const bool is_cpu =
      selection.where == Selection::Where::kCpu ||
      (selection.where == Selection::Where::kCudaSays && selection.visible.empty() &&
       device::cuda().backend == nullptr);  // which reads CUDA_VISIBLE_DEVICES for good
  if (is_cpu) return site::Devices(ranks);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!selection.visible.empty()) visible = selection.visible.c_str();
  size_t first = 0;
  if (selection.visible.empty() && list.gpus.size() == 1) first = std::stoul(list.gpus[0]);
  site::Devices all = site::visible_devices(census, visible, first + ranks);
  if (all.size() < first + ranks) return all;  // choose_device() says what is missing
  return {all.begin() + static_cast<int64_t>(first),
          all.begin() + static_cast<int64_t>(first + ranks)};
}

void require_no_quiet_hours(const site::Devices& devices, bool is_saved) {
  const std::string why = site::limits().quiet(devices, site::local_time());
  if (why.empty()) return;
  throw Error(is_saved ? Exit::kStopped : Exit::kResource, "{}; {}", why, site::limits().ask());
}

/// A launched training stops at once where it has to yield; its launcher or sweep starts it again.
[[noreturn]] void refuse_to_train(const std::string& yields) {
  throw Error(is_held_by_parent() ? Exit::kStopped : Exit::kResource,
              "{}, and training has to leave it: start it again later, or {}", yields,
              site::limits().ask());
}

std::unique_ptr<site::Hold> hold(const site::Devices& devices, const std::string& what) {
  if (!is_held_by_parent()) return site::take_hold(site::limits(), devices, what);
  site::limits().require(devices, devices, "");
  return nullptr;
}

/// Sleeps until it is worth another try.
void wait_for_devices(const std::string& yields, bool has_said, bool is_saved) {
  if (!has_said) log::info("waiting: {}, and training has to leave it", yields);
  if (sleep_unless_stopped(kYieldPoll)) return;
  throw Error(
      Exit::kStopped, "stopped while waiting for a device; {}",
      is_saved ? "the run's state is saved, --resume auto continues it" : "nothing was begun");
}

}  // namespace

bool is_held_by_parent() { return std::getenv(site::kHeldByParent) != nullptr; }

Placement place(device::DeviceConfig& config, const std::string& run, bool is_saved) {
  const site::Limits& limits = site::limits();
  const device::DeviceList list = device::parse_device_list(config.select);
  const bool is_cpu = list.kind == device::DeviceList::Kind::kCpu;
  for (bool has_said = false;; has_said = true) {
    // A run on the CPU need not wait for the driver.
    device::Census census = is_cpu ? device::Census{} : device::take_census();
    std::string yields = limits.keep_off(census, /*is_training=*/true);
    limits.bound_idle(config, site::visible_devices(census, nullptr, 0));
    if (auto selection = select(config, census, yields)) {
      Placement placement{.selection = *std::move(selection), .devices = {}, .hold = nullptr};
      placement.devices = devices_of_selection(placement.selection, list, census);
      require_no_quiet_hours(placement.devices, is_saved);
      yields = limits.yields(placement.devices, census.gpus);
      if (yields.empty()) {
        placement.hold = hold(placement.devices, run);
        const Selection& chosen = placement.selection;
        for (const std::string& line : chosen.warnings) log::warning("{}", line);
        for (const std::string& line : chosen.notes) log::info("{}", line);
        if (!chosen.visible.empty()) {
          ::setenv("CUDA_VISIBLE_DEVICES", chosen.visible.c_str(), 1);
          if (!chosen.is_auto) config.select = "cuda";
        }
        if (chosen.where == Selection::Where::kCpu) config.select = "cpu";
        return placement;
      }
    }
    if (is_held_by_parent()) refuse_to_train(yields);
    wait_for_devices(yields, has_said, is_saved);
  }
}

Placement admit_rank(c10::Device device, const std::string& run) {
  Placement placement;
  placement.devices = devices_of(device);
  require_no_quiet_hours(placement.devices, /*is_saved=*/false);
  const bool looks = site::limits().has_yields(placement.devices) && !device.is_cpu();
  const std::string yields =
      site::limits().yields(placement.devices, looks ? device::take_census().gpus : site::Gpus());
  if (!yields.empty()) refuse_to_train(yields);
  placement.hold = hold(placement.devices, run);
  return placement;
}

std::unique_ptr<site::Hold> hold_device(device::DeviceConfig& config, const std::string& command) {
  if (const distributed::Ranks ranks = distributed::read_ranks(); ranks.world > 1) {
    throw UsageError("trainer {} is one process, and {} starts {}; call it without", command,
                     ranks.launcher, ranks.world);
  }
  const site::Devices devices = devices_of(device::choose_device(config));
  site::limits().bound_memory(config, devices);
  return hold(devices, command);
}

site::Devices devices_of(c10::Device device) {
  if (device.is_cpu()) return {site::Device{}};
  const auto index = static_cast<size_t>(static_cast<uint8_t>(device.index()));
  const bool needs_names = !site::limits().rules().empty();
  const auto all = site::visible_devices(needs_names ? device::take_census() : device::Census{},
                                         std::getenv("CUDA_VISIBLE_DEVICES"), index + 1);
  if (index < all.size()) return {all[index]};
  return {{.word = std::to_string(index), .index = std::nullopt}};
}

}  // namespace brim::cli
