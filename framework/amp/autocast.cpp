#include "framework/amp/autocast.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <fstream>
#include <set>
#include <sstream>

namespace brim::amp {
namespace {

using c10::ScalarType;

constexpr int kFirstWithTensorCores = 70;
constexpr int kFirstWithBf16 = 80;  // and with TF32

/// The words of the first "flags" (x86) or "Features" (Arm) line of /proc/cpuinfo.
std::set<std::string> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line);
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

Precision resolve_on_cpu(PrecisionMode mode, const Abilities& abilities) {
  switch (mode) {
    case PrecisionMode::kAuto:
      if (!abilities.cpu_bf16) return {};
      return {.compute = ScalarType::BFloat16, .autocast = true};
    case PrecisionMode::kBf16:
      return {.compute = ScalarType::BFloat16,
              .autocast = true,
              .note = abilities.cpu_bf16 ? ""
                                         : "this CPU multiplies fp32 faster than bf16: steps take "
                                           "no less time than in fp32, activations less memory"};
    case PrecisionMode::kFp16:
      return {.compute = ScalarType::Half,
              .autocast = true,
              .scaler = true,
              .note = abilities.cpu_fp16
                          ? ""
                          : "fp16 is emulated on this CPU, many times slower than fp32"};
    case PrecisionMode::kFp32:
      return {};
    case PrecisionMode::kTf32:
      return {.note = "tf32 has no effect on a CPU: computing in fp32"};
    case PrecisionMode::kFp64:
      return {.compute = ScalarType::Double};
  }
  return {};
}

Precision resolve_on_cuda(PrecisionMode mode, const Abilities& abilities) {
  const bool has_bf16 = abilities.compute_capability >= kFirstWithBf16;
  switch (mode) {
    case PrecisionMode::kAuto:
      if (has_bf16) return {.compute = ScalarType::BFloat16, .autocast = true};
      if (abilities.compute_capability < kFirstWithTensorCores) return {};
      return {.compute = ScalarType::Half, .autocast = true, .scaler = true};
    case PrecisionMode::kBf16:
      return {.compute = ScalarType::BFloat16,
              .autocast = true,
              .note = has_bf16 ? ""
                               : "bf16 is emulated on this GPU (it needs compute capability 8.0); "
                                 "fp16 is faster"};
    case PrecisionMode::kFp16:
      return {.compute = ScalarType::Half, .autocast = true, .scaler = true};
    case PrecisionMode::kFp32:
      return {};
    case PrecisionMode::kTf32:
      if (has_bf16) return {.tf32 = true};
      return {.note =
                  "tf32 has no effect on this GPU (it needs compute capability 8.0): "
                  "computing in fp32"};
    case PrecisionMode::kFp64:
      return {.compute = ScalarType::Double};
  }
  return {};
}

}  // namespace

Abilities cpu_abilities() {
  const auto flags = cpu_flags();
  const auto has = [&](const char* flag) { return flags.contains(flag); };
  return {.cpu_bf16 = has("amx_bf16") || has("avx512_bf16") || has("bf16"),
          .cpu_fp16 = has("amx_fp16") || has("avx512_fp16") || has("asimdhp")};
}

Precision resolve(PrecisionMode mode, c10::DeviceType device, const Abilities& abilities) {
  return device == c10::DeviceType::CUDA ? resolve_on_cuda(mode, abilities)
                                         : resolve_on_cpu(mode, abilities);
}

void apply_tf32(const Precision& precision) {
  at::globalContext().setAllowTF32CuBLAS(precision.tf32);
  at::globalContext().setAllowTF32CuDNN(precision.tf32);
}

WeightCasts::WeightCasts() { at::autocast::increment_nesting(); }

WeightCasts::~WeightCasts() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

Autocast::Autocast(c10::DeviceType device, const Precision& precision)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      old_dtype_(at::autocast::get_autocast_dtype(device)) {
  at::autocast::set_autocast_enabled(device, precision.autocast);
  if (precision.autocast) at::autocast::set_autocast_dtype(device, precision.compute);
}

Autocast::~Autocast() {
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, old_dtype_);
}

}  // namespace brim::amp
