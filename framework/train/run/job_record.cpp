#include "framework/train/run/job_record.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "framework/device/cuda_loader.h"
#include "framework/nn/measured_forms.h"
#include "framework/nn/stage.h"
#include "framework/train/components.h"

namespace brim::train {
namespace {

constexpr int kFirstTensorCores = 70;  // compute capability 7.0, Volta

bool has_matrix_units(c10::Device device) {
  if (device.is_cuda()) {
    return device::cuda().backend->compute_capability(device.index()) >= kFirstTensorCores;
  }
  return abilities(device).cpu_bf16;
}

}  // namespace

nlohmann::json job_record(const RankModel& model, int64_t micro_batch) {
  return {{"precision", precision_name(model.precision)},
          {"matrix_units", has_matrix_units(model.device)},
          {"channels_last", model.channels_last},
          {"convolutions", model.has_convolutions},
          {"parameters", model.parameters},
          {"threads", at::get_num_threads()},
          {"micro_batch", micro_batch},
          {"batch_statistics", has_statistics(nn::whole_of(*model.module))}};
}

nlohmann::json forms_record() {
  nlohmann::json record = nlohmann::json::object();
  for (const auto& [name, form] : nn::measured_forms()) {
    record[name] = {{"fused_s", form.fused_s},
                    {"plain_s", form.plain_s},
                    {"taken", form.prefers_fused() ? "fused" : "plain"}};
  }
  return record;
}

nlohmann::json classes_record(const std::vector<ClassResult>& results,
                              const std::vector<std::string>& names) {
  const auto name_of = [&](size_t label) {
    return label < names.size() ? names[label] : std::to_string(label);
  };
  nlohmann::json record = nlohmann::json::array();
  for (size_t label = 0; label < results.size(); ++label) {
    const ClassResult& result = results[label];
    record.push_back(
        {{"name", name_of(label)}, {"samples", result.samples}, {"correct", result.correct}});
    if (result.taken_for.empty()) continue;
    nlohmann::json& taken_for = record.back()["taken_for"] = nlohmann::json::object();
    for (size_t other = 0; other < result.taken_for.size(); ++other) {
      if (result.taken_for[other] > 0) taken_for[name_of(other)] = result.taken_for[other];
    }
  }
  return record;
}

}  // namespace brim::train
