// Is there an NVIDIA driver, and is it new enough for this build's CUDA 13.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

namespace {

constexpr double kNeededCuda = 13.0;

bool has_device_file(const Machine& machine) {
  std::error_code ignored;
  return std::filesystem::exists(machine.path("dev/nvidia0"), ignored) ||
         std::filesystem::exists(machine.path("proc/driver/nvidia/version"), ignored);
}

}  // namespace

std::optional<CheckResult> check_driver(const Surroundings& s) {
  if (!s.why_no_nvml.empty()) {
    if (!has_device_file(s.machine)) {
      return CheckResult{Health::kPass, "no NVIDIA driver: runs train on the CPU", ""};
    }
    return CheckResult{
        Health::kFail, fmt::format("the kernel has an NVIDIA driver, but {}", s.why_no_nvml),
        "in a container, start it with the NVIDIA container toolkit (--gpus all); else "
        "install the driver's libraries of the same version as its kernel module"};
  }
  std::string found = fmt::format("{}, serves CUDA up to {}", s.driver.empty() ? "?" : s.driver,
                                  s.driver_cuda.empty() ? "?" : s.driver_cuda);
  if (!s.driver_cuda.empty() && std::strtod(s.driver_cuda.c_str(), nullptr) < kNeededCuda) {
    return CheckResult{Health::kFail, std::move(found),
                       "this build needs CUDA 13.0: install driver 580 or newer"};
  }
  return CheckResult{Health::kPass, std::move(found), ""};
}

}  // namespace brim::doctor::environment
