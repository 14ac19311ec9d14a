#include "framework/site/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "framework/device/gpus/nvml.h"

namespace brim::site {
namespace {

constexpr std::chrono::seconds kEvery{1};
constexpr double kSecondsOfHour = 3600;

}  // namespace

StopReason find_stop_reason(const Limits& limits, const Devices& devices, double held_s,
                            const std::tm& local, const Gpus& gpus) {
  const auto hours = limits.least(&Rule::hours, "hours", devices);
  if (hours && held_s >= hours->value * kSecondsOfHour) {
    return {StopCause::kHours, fmt::format("{}: {} at a stretch are over", hours->rule,
                                           format_duration(hours->value * kSecondsOfHour))};
  }
  if (std::string why = limits.quiet(devices, local); !why.empty()) {
    return {StopCause::kQuietHours, std::move(why)};
  }
  if (std::string why = limits.yields(devices, gpus); !why.empty()) {
    return {StopCause::kYields, std::move(why)};
  }
  return {};
}

Watch::Watch(const Limits& limits, Devices devices, std::function<void(const StopReason&)> act)
    : limits_(limits), devices_(std::move(devices)), act_(std::move(act)) {
  const bool may_end = limits.has_quiet_hours() || limits.has_yields(devices_) ||
                       limits.least(&Rule::hours, "hours", devices_).has_value();
  if (may_end) thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

StopReason Watch::look(const Gpus& gpus) const {
  return find_stop_reason(limits_, devices_, now_s() - start_s_, local_time(), gpus);
}

void Watch::run() {
  const bool reads_gpus =
      limits_.has_yields(devices_) && !std::ranges::all_of(devices_, &Device::is_cpu);
  std::optional<device::Nvml> nvml;
  if (reads_gpus) nvml.emplace();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kEvery, [this] { return ends_; })) {
    const StopReason reason = look(nvml ? nvml->read() : Gpus());
    if (reason.cause == StopCause::kNone) continue;
    cause_ = reason.cause;
    return act_(reason);
  }
}

}  // namespace brim::site
