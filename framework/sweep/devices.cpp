#include "framework/sweep/devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/base/words.h"
#include "framework/device/gpus/device_list.h"

namespace brim::sweep {
namespace {

constexpr double kClaimEvery_s = 2.0;

/// What CUDA_VISIBLE_DEVICES calls the GPUs that the trials may use; none: they run on the CPU.
std::vector<std::string> gpus_of(const device::DeviceConfig& config) {
  const device::DeviceList list = device::parse_device_list(config.select);
  if (list.kind == device::DeviceList::Kind::kCpu) return {};
  const device::Census census = device::take_census();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> words;
  if (list.kind == device::DeviceList::Kind::kGpus && census.is_known) {
    for (const auto word : split(device::select_devices(config, census, visible).visible)) {
      words.emplace_back(word);
    }
  } else if (census.is_known) {
    for (const auto& gpu : device::visible_gpus(census.gpus, visible)) words.push_back(gpu.word());
  }
  if (words.empty() && list.kind != device::DeviceList::Kind::kAuto) {
    throw Error(Exit::kResource,
                "device '{}': no GPU is visible to this process (trainer devices shows them)",
                config.select);
  }
  return words;
}

}  // namespace

Devices::Devices(const Plan& plan) : plan_(plan) {
  config_.select = plan.devices;
  config_.idle_free_memory = plan.idle_free_memory;
  config_.idle_utilisation = plan.idle_utilisation;
  for (std::string& word : gpus_of(config_)) pool_.push_back({std::move(word)});
  config_.select = "auto";
  if (pool_.empty()) {
    pool_.push_back({});
    return;
  }
  const auto needed = plan.devices_per_trial + plan.keep_free;
  if (std::cmp_less(pool_.size(), needed)) {
    throw Error(Exit::kResource,
                "--devices-per-trial {} with {} kept free: expected {} GPUs, found {}",
                plan.devices_per_trial, plan.keep_free, needed, pool_.size());
  }
}

/// Claims `wanted` more GPUs, all or none; as many as are to be kept free must be idle besides.
bool Devices::claim(size_t wanted, std::vector<size_t>& taken) {
  if (now_s() < next_claim_s_) return false;
  const device::Census census = device::take_census();
  std::vector<std::pair<size_t, device::Selection>> claimed;
  while (claimed.size() < wanted + static_cast<size_t>(plan_.keep_free)) {
    std::vector<std::string> left;
    for (size_t i = 0; i < pool_.size(); ++i) {
      const bool is_claimed =
          std::ranges::any_of(claimed, [i](const auto& claim) { return claim.first == i; });
      if (!pool_[i].lock && !is_claimed) left.push_back(pool_[i].word);
    }
    try {
      if (left.empty()) throw Error(Exit::kResource, "every GPU of this sweep has its trials");
      const std::string visible = fmt::format("{}", fmt::join(left, ","));
      device::Selection one = device::select_devices(config_, census, visible.c_str());
      const auto found = std::ranges::find(pool_, one.visible, &Device::word);
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
  const auto wanted = static_cast<size_t>(plan_.devices_per_trial);
  const bool is_cpu = pool_.front().word.empty();
  Placement placement;
  for (size_t i = 0; i < pool_.size() && placement.devices.size() < wanted; ++i) {
    const bool is_held = is_cpu || pool_[i].lock;
    if (is_held && pool_[i].trials < plan_.per_device) placement.devices.push_back(i);
  }
  if (is_cpu) {
    if (placement.devices.empty()) return std::nullopt;
    if (wanted > 1) {
      const std::vector<std::string> words(wanted, "cpu");
      placement.arguments = {"--devices", fmt::format("{}", fmt::join(words, ","))};
    }
    const bool is_chosen = std::getenv("OMP_NUM_THREADS") != nullptr;
    if (!is_chosen && plan_.threads > 0) {
      placement.environment = {{"OMP_NUM_THREADS", std::to_string(plan_.threads)}};
    }
  } else {
    const size_t missing = wanted - placement.devices.size();
    if (missing > 0 && !claim(missing, placement.devices)) return std::nullopt;
    std::vector<std::string> words;
    std::vector<size_t> numbers;
    for (const size_t place : placement.devices) {
      words.push_back(pool_[place].word);
      numbers.push_back(numbers.size());
    }
    // "cuda" takes what it is given; the locks are this process's.
    placement.arguments = {"--devices",
                           wanted == 1 ? "cuda" : fmt::format("{}", fmt::join(numbers, ","))};
    placement.environment = {{"CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(words, ","))}};
  }
  for (const size_t place : placement.devices) ++pool_[place].trials;
  return placement;
}

void Devices::give_back(const Placement& placement) {
  for (const size_t place : placement.devices) {
    if (--pool_[place].trials == 0) pool_[place].lock.reset();
  }
}

}  // namespace brim::sweep
