#include "framework/train/observe/profile_job.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/nn/measured_forms.h"
#include "framework/train/components.h"
#include "framework/train/observe/call_times.h"
#include "framework/train/observe/device_times.h"
#include "framework/train/observe/measured_peaks.h"
#include "framework/train/observe/operator_profiler.h"
#include "framework/train/step/training_step.h"

namespace brim::train {
namespace {

constexpr double kShortestProduct_s = 1e-4;  // whose time a clock tells well
constexpr int kMaxCounted = 8;               // steps, until two of them are alike
constexpr int64_t kUnprofiledSteps = 3;      // the first ones allocate, and measure fused forms

TakenStep take_step(TrainingStep& step) {
  const auto taken = stop_requested() ? std::nullopt : step.take();
  if (!taken) throw Error(Exit::kStopped, "stopped while steps were profiled");
  while (step.values().pop(/*wait=*/false)) {
  }
  return *taken;
}

std::vector<telemetry::FormChoice> form_choices() {
  std::vector<telemetry::FormChoice> result;
  for (const auto& [name, times] : nn::measured_forms()) {
    result.push_back({name, times.fused_s, times.plain_s, times.prefers_fused()});
  }
  return result;
}

/// Adds a step's phases to the mean of `profile.steps`.
void add_phases(telemetry::StepProfile& profile, const TakenStep& taken) {
  for (size_t phase = 0; phase < kPhaseCount; ++phase) {
    profile.phase_s[phase] += taken.record.phase_s[phase] / static_cast<double>(profile.steps);
  }
}

/// The same with its wall time, of which what is in no phase is other.
void add_step(telemetry::StepProfile& profile, double wall_s, const TakenStep& taken) {
  const auto& phases = taken.record.phase_s;
  const double in_none_s = wall_s - std::accumulate(phases.begin(), phases.end(), 0.0);
  const auto count = static_cast<double>(profile.steps);
  profile.wall_s += wall_s / count;
  profile.phase_s[static_cast<size_t>(Phase::kOther)] += std::max(0.0, in_none_s) / count;
  add_phases(profile, taken);
}

/// A usual step's calls: of two steps that made the same ones of as many samples. Null where some
/// steps have found none.
struct UsualStep {
  std::unique_ptr<OperatorProfiler> counts;
  std::vector<ExpectedCall> calls;
  int64_t samples = 0;
};
UsualStep usual_step(TrainingStep& step, const nn::Model& model) {
  UsualStep before;
  for (int i = 0; i < kMaxCounted; ++i) {
    UsualStep now;
    now.counts = std::make_unique<OperatorProfiler>(model, step.timeline(), /*keeps_order=*/true);
    now.samples = take_step(step).record.samples;
    now.counts->stop();
    now.calls = now.counts->order();
    if (now.calls == before.calls && now.samples == before.samples) return now;
    before = std::move(now);
  }
  return {};
}

/// Times the operators of usual steps; the others, such as an epoch's last one with fewer samples,
/// are left out. False where these are too many.
bool time_calls(TrainingStep& step, const nn::Model& model, telemetry::StepProfile& profile) {
  const UsualStep usual = usual_step(step, model);
  if (usual.counts == nullptr || usual.calls.empty()) return false;
  CallTimes times(usual.calls);
  int64_t counted = 0;
  for (int64_t i = 0; counted < profile.steps; ++i) {
    if (i == 2 * profile.steps + kMaxCounted) return false;
    step.timeline().take();
    const double start_s = now_s();
    const TakenStep taken = take_step(step);
    const double wall_s = now_s() - start_s;
    if (!times.end_step(taken.record.samples == usual.samples)) continue;
    add_step(profile, wall_s, taken);
    ++counted;
  }
  usual.counts->take_times(times.mean());
  profile.operators = usual.counts->mean_of(1);
  profile.profiler_s = usual.counts->own_s(1);
  return true;
}

/// Counts and times the operators of every step.
void count_and_time_calls(TrainingStep& step, const nn::Model& model, c10::Device device,
                          device::Memory& memory, telemetry::StepProfile& profile) {
  profile.wall_s = 0;
  profile.phase_s = {};
  std::optional<DeviceTimes> device_times;
  if (device.is_cuda()) device_times.emplace(device);
  OperatorProfiler profiler(model, step.timeline(), device.is_cuda());
  step.timeline().take();
  const double start_s = now_s();
  for (int64_t i = 0; i < profile.steps; ++i) add_phases(profile, take_step(step));
  memory.synchronize();
  profile.wall_s = (now_s() - start_s) / static_cast<double>(profile.steps);
  if (device_times) profiler.take_device_times(device_times->take());
  profile.operators = profiler.mean_of(profile.steps);
  profile.profiler_s = profiler.own_s(profile.steps);
}

/// Of every format that products were computed in.
telemetry::Peaks measure_peaks(const telemetry::StepProfile& profile, c10::Device device) {
  static const std::set<std::string> kFormats = {"bf16", "fp16", "fp32", "fp64"};
  telemetry::Peaks peaks;
  peaks.call_s = measured_call_s(device);
  // Under a small cap on memory there is no large copy, and no limit is known.
  device::fits([&] { peaks.bytes_per_s = measured_copy_bytes(device); });
  for (const telemetry::OperatorCalls& calls : profile.operators) {
    if (calls.flops == 0) continue;
    const std::string format = calls.product_format();
    if (!kFormats.contains(format) || peaks.flops_per_s.contains(format)) continue;
    const bool is_tf32 = format == "fp32" && profile.precision == "tf32";
    peaks.flops_per_s[format] = measured_product_flops(device, is_tf32 ? "tf32" : format);
  }
  // Beside other work a product may be slower than the steps' own. Attention is counted in full,
  // also where it is causal and half is computed.
  for (const telemetry::OperatorCalls& calls : profile.operators) {
    const bool is_attention = calls.name.find("attention") != std::string::npos;
    if (is_attention || !(calls.self_s > kShortestProduct_s * calls.calls)) continue;
    const auto peak = peaks.flops_per_s.find(calls.product_format());
    if (peak == peaks.flops_per_s.end()) continue;
    peak->second = std::max(peak->second, calls.flops / calls.self_s);
  }
  return peaks;
}

}  // namespace

telemetry::StepProfile profile_job(JobConfig job, c10::Device device, device::Memory& memory,
                                   int64_t steps) {
  job.train.cuda_graph = false;  // what a graph replays calls no operator
  telemetry::StepProfile profile{.recipe = job.run.name,
                                 .device = device.str(),
                                 .fused = !job.precision.fused   ? "auto"
                                          : *job.precision.fused ? "true"
                                                                 : "false",
                                 .steps = steps,
                                 .micro_batch = job.batch.micro_or_all(),
                                 .global_batch = *job.batch.global};
  {
    TrainingComponents components = build_components(job, device, distributed::Group::alone());
    profile.precision = precision_name(components.model.precision);
    TrainingStep step(job, components, /*finished_steps=*/0, {}, memory);
    for (int64_t i = 0; i < kUnprofiledSteps; ++i) take_step(step);
    memory.synchronize();

    if (device.is_cuda() || !time_calls(step, *components.model.module, profile)) {
      count_and_time_calls(step, *components.model.module, device, memory, profile);
    }
    // A rounding below 0, where time was moved from one phase to another.
    for (double& seconds : profile.phase_s) seconds = std::max(0.0, seconds);
  }
  profile.forms = form_choices();
  memory.release_cached();
  profile.peaks = measure_peaks(profile, device);
  return profile;
}

}  // namespace brim::train
