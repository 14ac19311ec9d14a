// What precision a run computes in, and the scope in which LibTorch's autocast casts to it.
// Which device is used, and what it can do, is the device module's; scaling of fp16 losses is in
// grad_scaler.h.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <string>
#include <string_view>

namespace brim::amp {

enum class PrecisionMode { kAuto, kBf16, kFp16, kFp32, kTf32, kFp64 };
/// The recipe's words, in the enumerators' order.
inline constexpr std::array<std::string_view, 6> kPrecisionWords = {"auto", "bf16", "fp16",
                                                                    "fp32", "tf32", "fp64"};

/// How a run computes.
struct Precision {
  c10::ScalarType compute = c10::ScalarType::Float;  // of matrix products and convolutions
  bool autocast = false;
  bool scaler = false;    // the loss is scaled, see GradScaler
  bool tf32 = false;      // float32 products may round their inputs to TF32
  std::string note = "";  // where not empty, what the user should be told about this choice

  /// Of parameters, their gradients, the optimizer and images: float32, in mode fp64 (for checks of
  /// the maths) float64.
  c10::ScalarType parameters() const {
    return compute == c10::ScalarType::Double ? compute : c10::ScalarType::Float;
  }
};

/// What decides what `auto` becomes.
struct Abilities {
  int compute_capability = 0;  // CUDA: 90 is 9.0
  bool cpu_bf16 = false;       // the CPU multiplies bf16 in hardware, faster than fp32
  bool cpu_fp16 = false;       // the CPU multiplies fp16 in hardware
};

/// cpu_bf16 and cpu_fp16 of this machine.
Abilities cpu_abilities();

/// Never throws: every mode works on every device, and `note` says where it brings nothing.
Precision resolve(PrecisionMode mode, c10::DeviceType device, const Abilities& abilities);

/// Allows or forbids TF32 in cuBLAS and cuDNN, for the whole process.
void apply_tf32(const Precision& precision);

/// Keeps the casts of weights that autocast makes while it lives, on the thread that made it, for
/// all scopes of Autocast within: passes over several micro-batches cast a weight once. It must end
/// before the optimizer changes weights.
class WeightCasts {
 public:
  WeightCasts();
  ~WeightCasts();
  WeightCasts(const WeightCasts&) = delete;
  WeightCasts& operator=(const WeightCasts&) = delete;
};

/// Autocast on one device type while it lives, on the thread that made it. Scopes nest; each
/// restores what it found. Leaving the outermost one drops the cached casts of the weights, unless
/// WeightCasts keeps them, so it must be left before the optimizer changes them.
class Autocast {
 public:
  /// Where precision.autocast is false, autocast is off inside the scope.
  Autocast(c10::DeviceType device, const Precision& precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  WeightCasts casts_;
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType old_dtype_;
};

}  // namespace brim::amp
