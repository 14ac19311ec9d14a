#include "framework/doctor/self_test.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

#include "framework/base/error.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/memory.h"
#include "framework/recipe/document.h"
#include "framework/train/components.h"
#include "framework/train/step/training_step.h"

namespace brim::doctor {
namespace {

using environment::CheckResult;
using environment::Health;

constexpr int kSteps = 10;
/// float32 rounds at 6e-8, and ten steps make some 1e-5 of that; TF32, which is off here, rounds at
/// 5e-4.
constexpr double kPass = 1e-2;
constexpr double kFail = 1e-1;

constexpr const char* kRecipe = R"(
[run]
name = "self-test"
[model]
name = "small_cnn"
width = 8
[data]
kind = "synthetic"
samples = 160
eval_samples = 32
height = 8
width = 8
channels = 1
workers = 0
[batch]
global = 16
[optimizer]
name = "sgd"
learning_rate = 0.05
momentum = 0.9
)";

at::Tensor flat(const std::vector<at::Tensor>& weights) {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& weight : weights) {
    pieces.push_back(weight.detach().to(at::kCPU, at::kDouble, false, /*copy=*/true).flatten());
  }
  return at::cat(pieces);
}

/// Of an exception of LibTorch's: without its backtrace.
std::string first_line(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

Trained train_tiny(c10::Device device, device::Memory& memory, amp::PrecisionMode precision,
                   int64_t seed) {
  train::JobConfig job = train::read_job(recipe::parse(kRecipe, "the self-test's recipe"));
  job.run.seed = seed;
  job.precision.mode = precision;
  train::TrainingComponents parts =
      train::build_components(job, device, distributed::Group::alone());
  Trained result;
  result.start = flat(parts.model.module->parameters());
  train::TrainingStep step(job, parts, /*finished_steps=*/0, {}, memory);
  for (int i = 0; i < kSteps; ++i) step.take();
  result.weights = flat(parts.model.module->parameters());
  result.loss = parts.task->metrics(step.evaluation_sums().cpu()).front().second;
  return result;
}

CheckResult judge(const Trained& reference, const Trained& own) {
  const double learned = (reference.weights - reference.start).norm().item<double>();
  const double away = (own.weights - reference.weights).norm().item<double>() / learned;
  const double loss_away = std::abs(own.loss - reference.loss) / std::abs(reference.loss);
  const auto within = [&](double limit) { return away <= limit && loss_away <= limit; };
  std::string found = fmt::format(
      "{} steps in fp32: weights {:.1e} and loss {:.1e} from what float64 makes of them", kSteps,
      away, loss_away);
  if (within(kPass)) return {Health::kPass, std::move(found), ""};
  if (within(kFail)) {
    return {
        Health::kWarn, std::move(found),
        "more than rounding: look for settings that lower the precision (NVIDIA_TF32_OVERRIDE)"};
  }
  return {Health::kFail, std::move(found),
          "this device computes wrong results: check its memory (ECC errors in `trainer devices`), "
          "driver and libraries before training on it"};
}

CheckResult test_device(c10::Device device, device::Memory& memory, const Trained& reference) {
  try {
    return judge(reference, train_tiny(device, memory, amp::PrecisionMode::kFp32));
  } catch (const std::exception& error) {
    if (device::as_error(error).status() == Exit::kResource) {
      return {Health::kWarn, fmt::format("no memory to train in: {}", first_line(error)),
              "look with `trainer devices` at what fills it"};
    }
    return {Health::kFail, fmt::format("ten steps could not be trained: {}", first_line(error)),
            "leave this device out (CUDA_VISIBLE_DEVICES), or repair its driver and libraries"};
  }
}

std::vector<environment::Result> self_test() {
  // Before LibTorch looks for GPUs: once it has found none, that stays so.
  const device::CudaBackend* cuda = device::cuda().backend;
  const device::DeviceConfig config;
  std::vector<environment::Result> results;
  const auto memory = device::memory_of(c10::kCPU, config);
  std::optional<Trained> reference;
  try {
    reference = train_tiny(c10::kCPU, *memory, amp::PrecisionMode::kFp64);
  } catch (const std::exception& error) {
    return {{"self-test cpu",
             {Health::kFail, fmt::format("ten steps could not be trained: {}", first_line(error)),
              "this build or its LibTorch is damaged: install them again"}}};
  }
  results.push_back({"self-test cpu", test_device(c10::kCPU, *memory, *reference)});
  for (int i = 0; cuda != nullptr && i < cuda->device_count(); ++i) {
    const c10::Device gpu(c10::kCUDA, static_cast<c10::DeviceIndex>(i));
    CheckResult finding;
    try {
      cuda->set_device(i);
      const auto gpu_memory = device::memory_of(gpu, config);
      finding = test_device(gpu, *gpu_memory, *reference);
    } catch (const std::exception& error) {
      finding = {Health::kFail, fmt::format("can't be used: {}", first_line(error)),
                 "leave this device out (CUDA_VISIBLE_DEVICES), or repair its driver"};
    }
    results.push_back({fmt::format("self-test {}", gpu.str()), std::move(finding)});
  }
  return results;
}

}  // namespace brim::doctor
