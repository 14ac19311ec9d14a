// Does CUDA start in this process.
#include <fmt/format.h>

#include "framework/device/gpus/device_list.h"
#include "framework/doctor/environment/checks.h"

namespace brim::doctor::environment {

std::optional<CheckResult> check_cuda(const Surroundings& s) {
  const char* list = s.cuda_visible_devices ? s.cuda_visible_devices->c_str() : nullptr;
  if (device::visible_gpus(s.gpus, list).empty()) return std::nullopt;
  if (!s.software.why_no_cuda.empty()) {
    return CheckResult{Health::kFail, s.software.why_no_cuda,
                       "runs train on the CPU until this is fixed"};
  }
  return CheckResult{Health::kPass, fmt::format("runtime {}", s.software.cuda_runtime), ""};
}

}  // namespace brim::doctor::environment
