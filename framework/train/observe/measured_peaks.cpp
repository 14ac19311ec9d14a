#include "framework/train/observe/measured_peaks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/amp/autocast.h"
#include "framework/base/units.h"
#include "framework/device/cuda_loader.h"
#include "framework/nn/fused/upcast.h"

namespace brim::train {
namespace {

constexpr int64_t kSide = 2048, kQuickSide = 512, kGpuSide = 8192;
constexpr int64_t kCopied = int64_t{128} << 20, kQuickCopied = int64_t{32} << 20,
                  kGpuCopied = int64_t{1} << 30;  // bytes
constexpr double kProducts_s = 0.3, kCopies_s = 0.1, kQuick_s = 0.1;
constexpr int kFewest = 3;
constexpr int kCalls = 1000;

at::ScalarType type_of(const std::string& format) {
  if (format == "bf16") return at::kBFloat16;
  if (format == "fp16") return at::kHalf;
  return format == "fp64" ? at::kDouble : at::kFloat;
}

/// Of the fastest of some that fit into `most_s`, after one that warms up.
template <class Work>
double fastest_s(c10::Device device, double most_s, Work work) {
  const auto finish = [&] {
    if (device.is_cuda()) device::cuda().backend->synchronize(device.index());
  };
  finish();
  double best_s = 0;
  const double start_s = now_s();
  for (int i = 0; i < kFewest || now_s() - start_s < most_s; ++i) {
    const double before_s = now_s();
    work();
    finish();
    const double taken_s = now_s() - before_s;
    if (i == 0) continue;
    best_s = best_s > 0 ? std::min(best_s, taken_s) : taken_s;
  }
  return best_s;
}

}  // namespace

bool is_limited_by_fp32(c10::Device device, const std::string& format) {
  if (!device.is_cpu()) return false;
  return (format == "bf16" && !nn::multiplies_bf16_faster()) ||
         (format == "fp16" && !amp::cpu_abilities().cpu_fp16);
}

int64_t measured_side(c10::Device device, Effort effort) {
  if (device.is_cuda()) return kGpuSide;
  return effort == Effort::kQuick ? kQuickSide : kSide;
}

double measured_product_flops(c10::Device device, const std::string& format, Effort effort) {
  const at::NoGradGuard no_grad;
  amp::apply_tf32({.tf32 = format == "tf32"});
  const at::ScalarType type = is_limited_by_fp32(device, format) ? at::kFloat : type_of(format);
  const auto options = at::device(device).dtype(at::kFloat);
  const int64_t side = measured_side(device, effort);
  const auto matrix = [&] {  // of values like a model's, in less time than one for each would take
    return at::outer(at::randn({side}, options), at::randn({side}, options)).to(type);
  };
  const at::Tensor a = matrix(), b = matrix();
  const double best_s =
      fastest_s(device, effort == Effort::kQuick ? kQuick_s : kProducts_s, [&] { at::mm(a, b); });
  const auto factor = static_cast<double>(side);
  return 2.0 * factor * factor * factor / best_s;
}

double measured_copy_bytes(c10::Device device, Effort effort, int64_t most_bytes) {
  const at::NoGradGuard no_grad;
  const bool is_quick = effort == Effort::kQuick;
  const int64_t wanted = device.is_cuda() ? kGpuCopied : is_quick ? kQuickCopied : kCopied;
  const int64_t bytes = std::clamp<int64_t>(most_bytes, 1, wanted);
  const at::Tensor from = at::zeros({bytes}, at::device(device).dtype(at::kByte));
  at::Tensor to = at::zeros_like(from);
  const double best_s = fastest_s(device, is_quick ? kQuick_s : kCopies_s, [&] { to.copy_(from); });
  return 2.0 * static_cast<double>(bytes) / best_s;
}

double measured_call_s(c10::Device device) {
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::ones({1}, device);
  const double best_s = fastest_s(device, /*most_s=*/0, [&] {
    for (int i = 0; i < kCalls; ++i) at::add(one, one);
  });
  return best_s / kCalls;
}

}  // namespace brim::train
