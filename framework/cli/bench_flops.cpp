#include "framework/cli/bench_flops.h"

#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/recipe/document.h"
#include "framework/train/job.h"
#include "framework/train/observe/model_summary.h"

namespace brim::cli {
namespace {

using nlohmann::json;

/// The GPU that runs ran on; empty: the CPU.
std::string gpu_of(const json& environment) {
  const json device = environment.value("device", json());
  if (!device.is_string() || !device.get<std::string>().starts_with("cuda")) return "";
  return environment.value(json::json_pointer("/gpus/0/name"), std::string("an unknown GPU"));
}

int64_t devices_of(const json& environment, const std::string& gpu) {
  const json ranks = environment.value("ranks", json());
  // Ranks on the CPU share it.
  return !gpu.empty() && ranks.is_number_integer() ? ranks.get<int64_t>() : 1;
}

/// None where it can't be measured: what was is worth more than that.
train::Peak peak_of(const std::string& gpu, const std::string& format) {
  try {
    return train::peak_of(gpu, format);
  } catch (const std::exception& error) {
    log::warning("no peak of {} in {}: {}", gpu, format, error.what());
    return {};
  }
}

}  // namespace

void add_model_metrics(experiment::BenchResult& result) {
  const std::string gpu = gpu_of(result.environment);
  std::map<std::string, train::Peak> peaks;  // by format
  for (experiment::BenchVariant& variant : result.variants) {
    if (!variant.job.is_object()) continue;
    try {
      train::JobConfig job = train::read_job(recipe::parse(variant.recipe, variant.name));
      variant.job["flops_per_sample"] = train::summarise(job).training_flops();
    } catch (const Error& error) {
      log::warning("{}: its operations could not be counted: {}", variant.name, error.what());
      continue;
    }
    const auto format = variant.job.value("precision", std::string("fp32"));
    if (!peaks.contains(format)) peaks[format] = peak_of(gpu, format);
    variant.job["peak_flops"] =
        peaks[format].flops * static_cast<double>(devices_of(result.environment, gpu));
    variant.job["peak_source"] = peaks[format].source;
  }
}

}  // namespace brim::cli
