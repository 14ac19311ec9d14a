#include "framework/sweep/devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "framework/base/error.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/device/gpus/device_list.h"
#include "framework/site/limits.h"

namespace brim::sweep {
namespace {

constexpr double kClaimEvery_s = 2.0;

/// The GPUs that the trials may use; none: they run on the CPU.
site::Devices gpus_of(const device::DeviceConfig& config) {
  const device::DeviceList list = device::parse_device_list(config.select);
  if (list.kind == device::DeviceList::Kind::kCpu) return {};
  device::Census census = device::take_census();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  site::Devices gpus;
  if (list.kind == device::DeviceList::Kind::kGpus && census.is_known) {
    site::limits().keep_off(census, /*is_training=*/false);
    const device::Selection chosen = device::select_devices(config, census, visible);
    if (!chosen.visible.empty()) gpus = site::visible_devices(census, chosen.visible.c_str(), 0);
  } else if (census.is_known) {
    gpus = site::visible_devices(census, visible, 0);
  }
  if (gpus.empty() && list.kind != device::DeviceList::Kind::kAuto) {
    throw Error(Exit::kResource,
                "device '{}': no GPU is visible to this process (trainer devices shows them)",
                config.select);
  }
  std::string why;
  const auto is_forbidden = [&](const site::Device& gpu) {
    const std::string reason = site::limits().forbids(gpu);
    if (!reason.empty()) why = reason;
    return !reason.empty();
  };
  std::erase_if(gpus, is_forbidden);
  if (gpus.empty() && !why.empty()) throw Error(Exit::kResource, why);
  return gpus;
}

}  // namespace

Devices::Devices(const Plan& plan) : plan_(plan) {
  config_.select = plan.devices;
  config_.idle_free_memory = plan.idle_free_memory;
  config_.idle_utilisation = plan.idle_utilisation;
  for (site::Device& gpu : gpus_of(config_)) pool_.push_back({.device = std::move(gpu)});
  config_.select = "auto";
  const auto wanted = static_cast<size_t>(plan.devices_per_trial);
  if (pool_.empty()) {
    pool_.push_back({});
    const site::Devices cpu(wanted);
    site::limits().require(cpu, cpu, "");
    return;
  }
  const auto needed = plan.devices_per_trial + plan.keep_free;
  if (std::cmp_less(pool_.size(), needed)) {
    throw Error(Exit::kResource,
                "--devices-per-trial {} with {} kept free: expected {} GPUs, found {}",
                plan.devices_per_trial, plan.keep_free, needed, pool_.size());
  }
  std::vector<size_t> all(pool_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  site::limits().bound_idle(config_, devices_of(all));
  all.resize(wanted);
  site::limits().require(devices_of(all), devices_of(all), "");
}

/// Claims `wanted` more GPUs, all or none; as many as are to be kept free must be idle besides.
bool Devices::claim(size_t wanted, std::vector<size_t>& taken) {
  if (now_s() < next_claim_s_) return false;
  device::Census census = device::take_census();
  site::limits().keep_off(census, /*is_training=*/true);
  std::vector<std::pair<size_t, device::Selection>> claimed;
  while (claimed.size() < wanted + static_cast<size_t>(plan_.keep_free)) {
    std::vector<std::string> left;
    for (size_t i = 0; i < pool_.size(); ++i) {
      const bool is_claimed =
          std::ranges::any_of(claimed, [i](const auto& claim) { return claim.first == i; });
      if (!pool_[i].lock && !is_claimed) left.push_back(pool_[i].device.word);
    }
    try {
      if (left.empty()) throw Error(Exit::kResource, "every GPU of this sweep has its trials");
      const std::string visible = fmt::format("{}", fmt::join(left, ","));
      device::Selection one = device::select_devices(config_, census, visible.c_str());
      const auto found = std::ranges::find_if(
          pool_, [&](const Device& each) { return each.device.word == one.visible; });
      if (found == pool_.end()) throw Error(Exit::kResource, "no GPU answers");
      claimed.emplace_back(found - pool_.begin(), std::move(one));
    } catch (const Error& error) {
      if (error.status() != Exit::kResource) throw;
      why_none_ = error.what();
      next_claim_s_ = now_s() + kClaimEvery_s;
      return false;
    }
  }
  claimed.resize(wanted);
  for (auto& [place, selection] : claimed) {
    pool_[place].lock.emplace(std::move(selection));
    taken.push_back(place);
  }
  return true;
}

std::optional<Placement> Devices::take() {
  Placement placement;
  if (now_s() < next_hold_s_ || !choose(placement) || !hold(placement)) return std::nullopt;
  for (const size_t place : placement.devices) ++pool_[place].trials;
  return placement;
}

/// Finds room for a trial, and says how it is to be started there.
bool Devices::choose(Placement& placement) {
  const auto wanted = static_cast<size_t>(plan_.devices_per_trial);
  const bool is_cpu = pool_.front().device.is_cpu();
  for (size_t i = 0; i < pool_.size() && placement.devices.size() < wanted; ++i) {
    const bool is_held = is_cpu || pool_[i].lock;
    if (is_held && pool_[i].trials < plan_.per_device) placement.devices.push_back(i);
  }
  placement.environment = {{site::kHeldByParent, "1"}};
  if (is_cpu) {
    if (placement.devices.empty()) return false;
    const std::vector<std::string> words(wanted, "cpu");
    placement.arguments = {"--devices", fmt::format("{}", fmt::join(words, ","))};
    if (std::getenv("OMP_NUM_THREADS") == nullptr) {
      const int64_t threads = usable_cores() / (plan_.per_device * plan_.devices_per_trial);
      placement.environment.emplace_back("OMP_NUM_THREADS",
                                         std::to_string(std::max<int64_t>(1, threads)));
    }
    return true;
  }
  const size_t missing = wanted - placement.devices.size();
  if (missing > 0 && !claim(missing, placement.devices)) return false;
  std::vector<std::string> words;
  std::vector<size_t> numbers;
  for (const size_t place : placement.devices) {
    words.push_back(pool_[place].device.word);
    numbers.push_back(numbers.size());
  }
  // "cuda" takes what it is given; the locks are this process's.
  placement.arguments = {"--devices",
                         wanted == 1 ? "cuda" : fmt::format("{}", fmt::join(numbers, ","))};
  placement.environment.emplace_back("CUDA_VISIBLE_DEVICES",
                                     fmt::format("{}", fmt::join(words, ",")));
  return true;
}

/// Holds the trial's devices where the rules allow it at this time; else gives back what it
/// claimed.
bool Devices::hold(Placement& placement) {
  const bool is_cpu = pool_.front().device.is_cpu();
  const site::Devices devices = is_cpu ? site::Devices(static_cast<size_t>(plan_.devices_per_trial))
                                       : devices_of(placement.devices);
  std::string why = site::limits().quiet(devices, site::local_time());
  if (why.empty() && is_cpu) why = site::limits().yields(devices, {});
  try {
    if (why.empty()) {
      placement.hold = site::take_hold(site::limits(), devices, plan_.name);
      return true;
    }
  } catch (const Error& error) {
    if (error.status() != Exit::kResource) throw;
    why = error.what();
  }
  for (const size_t place : placement.devices) {
    if (pool_[place].trials == 0) pool_[place].lock.reset();
  }
  why_none_ = std::move(why);
  next_hold_s_ = now_s() + kClaimEvery_s;
  return false;
}

site::Devices Devices::devices_of(const std::vector<size_t>& places) const {
  site::Devices devices;
  for (const size_t place : places) devices.push_back(pool_[place].device);
  return devices;
}

void Devices::give_back(const Placement& placement) {
  next_claim_s_ = next_hold_s_ = 0;  // there may be room now
  for (const size_t place : placement.devices) {
    if (--pool_[place].trials == 0) pool_[place].lock.reset();
  }
}

}  // namespace brim::sweep
