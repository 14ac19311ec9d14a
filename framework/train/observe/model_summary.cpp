#include "framework/train/observe/model_summary.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "framework/amp/autocast.h"
#include "framework/base/timeline.h"
#include "framework/base/units.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/peak.h"
#include "framework/nn/flops.h"
#include "framework/nn/without_storage.h"
#include "framework/train/components.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/measured_peaks.h"
#include "framework/train/observe/module_memory.h"
#include "framework/train/tuning/probe_job.h"

namespace brim::train {
namespace {

constexpr int64_t kSamples = 2;      // one is too few for a batch norm of one pixel
constexpr int64_t kShown = 1 << 20;  // of what a pass keeps once

/// The first of its samples.
data::DeviceBatch first_of(const data::DeviceBatch& batch, int64_t samples) {
  const auto first = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, 0, samples) : tensor;
  };
  return {.inputs = first(batch.inputs),
          .labels = first(batch.labels),
          .partner_labels = first(batch.partner_labels),
          .label_shares = first(batch.label_shares)};
}

/// What modules keep of a forward pass for backward, by name.
std::map<std::string, int64_t> kept_bytes(const TrainingComponents& components,
                                          const data::DeviceBatch& batch) {
  const amp::Autocast autocast(components.model.device.type(), components.model.precision);
  const ModuleMemory memory(*components.model.module, components.model.device);
  const at::Tensor loss = components.task->loss(*components.model.module, batch);
  std::map<std::string, int64_t> kept;  // while `loss` holds it
  for (const auto& module : memory.held()) kept[module.module] = module.bytes;
  return kept;
}

}  // namespace

int64_t ModelSummary::training_flops() const { return nn::kTrainingPasses * forward_flops; }

ModelSummary summarise(JobConfig& job) {
  const DataShape shape = shape_of(job);
  ProbeJob probe(job, shape);
  probe.set_size(2 * kSamples, /*micro_batches=*/1, /*parts=*/1);
  TrainingComponents components =
      build_components(job, c10::kCPU, distributed::Group::alone(), Weights::kNone);
  components.model.module->train();
  Timeline timeline;
  const auto inputs =
      Inputs(job, components.data, components.model).training(0, 2 * kSamples, nullptr, timeline);
  const auto* input = inputs->next();
  const data::DeviceBatch few = first_of(input->tensors, kSamples);
  const nn::WithoutStorage without_storage;

  ModelSummary summary;
  for (const at::Tensor& parameter : components.model.module->parameters()) {
    summary.parameters += parameter.numel();
    if (parameter.requires_grad()) summary.trained_parameters += parameter.numel();
  }
  {
    const at::NoGradGuard no_grad;
    const nn::FlopCounter counter;
    components.task->loss(*components.model.module, few);
    summary.forward_flops = counter.total() / kSamples;
  }
  // What more samples add is theirs; the rest is kept once, such as weights in the type that
  // products are computed in.
  const auto of_few = kept_bytes(components, few);
  for (const auto& [module, bytes] : kept_bytes(components, input->tensors)) {
    const auto found = of_few.find(module);
    const int64_t before = found == of_few.end() ? 0 : found->second;
    const int64_t of_sample = (bytes - before) / kSamples;
    summary.once_bytes += bytes - 2 * kSamples * of_sample;
    if (of_sample <= 0) continue;
    summary.modules.push_back({module, of_sample});
    summary.activation_bytes += of_sample;
  }
  std::ranges::stable_sort(summary.modules, std::greater<>{}, &telemetry::ModuleBytes::bytes);
  return summary;
}

std::string to_text(const ModelSummary& summary) {
  std::string text = fmt::format(
      "parameters:  {} ({} trained)\n"
      "forward:     {} GFLOP a sample (two for each multiply-add); training {}\n"
      "activations: {} a sample{}\n",
      format_count(summary.parameters), format_count(summary.trained_parameters),
      format_number(1e-9 * static_cast<double>(summary.forward_flops)),
      format_number(1e-9 * static_cast<double>(summary.training_flops())),
      format_bytes(summary.activation_bytes),
      summary.once_bytes >= kShown ? fmt::format(", and {} in each pass (weights cast for it)",
                                                 format_bytes(summary.once_bytes))
                                   : std::string());
  const size_t count = std::min(summary.modules.size(), kLargestModules);
  for (size_t i = 0; i < count; ++i) {
    text += fmt::format("  {:<30} {}\n", summary.modules[i].module,
                        format_bytes(summary.modules[i].bytes));
  }
  return text;
}

Peak peak_of(const std::string& gpu, const std::string& format) {
  const double known = gpu.empty() ? 0 : device::peak_flops(gpu, format);
  if (known > 0) return {known, "data sheet of " + gpu};
  if (!gpu.empty() && device::cuda().backend == nullptr) return {};
  const c10::Device device = gpu.empty() ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, 0);
  return {
      measured_product_flops(device, format),
      fmt::format(
          "measured: products of {0}×{0} matrices in {1}{2}", measured_side(device), format,
          is_limited_by_fp32(device, format) ? ", which this CPU multiplies faster in fp32" : "")};
}

}  // namespace brim::train
