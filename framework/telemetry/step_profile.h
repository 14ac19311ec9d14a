// What training steps spent their time on, operator by operator: measured by `trainer profile`,
// kept in profile.json, shown by its page, reports and diagnoses.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/timeline.h"

namespace brim::telemetry {

/// A tensor that an operator was given.
struct TensorShape {
  std::string dtype;  // "fp32", "bf16", "int64", …
  std::vector<int64_t> sizes;
};

/// The calls of one operator within one module and phase, on tensors of these shapes; all of it is
/// the mean of a step.
struct OperatorCalls {
  std::string name;    // "aten::addmm"; a backward node's own work: "AddmmBackward0"
  std::string module;  // "layer1.0.conv1", "loss", "input"; "" outside forward and backward
  Phase phase = Phase::kOther;
  std::vector<TensorShape> inputs = {};  // lists of tensors are left out
  double calls = 0.0;
  double self_s = 0.0;  // without the operators that it calls; on a GPU, of its kernels
  double flops = 0.0;   // of products, two for each multiply-add; 0: it is none
  double bytes = 0.0;   // of what it reads and writes, each tensor once

  /// What a product is computed in, such as "bf16"; "" without inputs. Weights may be wider than
  /// that, and are rounded on their way; depthwise convolutions compute in the weight's format.
  std::string product_format() const;
};

/// The device's own limits, measured beside the steps.
struct Peaks {
  std::map<std::string, double> flops_per_s = {};  // of large products, by dtype
  double bytes_per_s = 0.0;                        // of a large copy, read and written
  double call_s = 0.0;                             // of an operator on a single number
};

/// Which of two forms of an operation was taken.
struct FormChoice {
  std::string name;
  double fused_s = 0.0, plain_s = 0.0;  // forward and backward
  bool is_fused = false;
};

struct StepProfile {
  std::string recipe = {};     // run.name
  std::string device = {};     // "cpu", "cuda:0"
  std::string precision = {};  // "bf16", …
  std::string fused = {};      // precision.fused
  int64_t steps = 0;           // that were measured
  int64_t micro_batch = 0, global_batch = 0;
  double wall_s = 0.0;                              // of a step, by a clock of its own
  std::array<double, kPhaseCount> phase_s = {};     // of a step, by the timeline
  std::array<double, kPhaseCount> profiler_s = {};  // of that: what measuring itself took
  std::vector<OperatorCalls> operators = {};
  Peaks peaks = {};
  std::vector<FormChoice> forms = {};

  bool is_on_gpu() const { return device != "cpu"; }
};

nlohmann::json to_json(const StepProfile& profile);
/// What to_json() gave; nullopt where it is something else, or holds more than a profile can.
std::optional<StepProfile> read_step_profile(const nlohmann::json& json);

/// The file's name in a run's folder.
inline constexpr const char* kProfileFile = "profile.json";

}  // namespace brim::telemetry
