#include "framework/train/state.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/tensors.h"
#include "framework/nn/model.h"

namespace brim::train {
namespace {

using checkpoint::TensorMap;

constexpr int kFormat = 1;

/// The generators that a step draws from, by their state's name.
std::vector<std::pair<std::string, at::Generator>> generators(const Parts& parts) {
  std::vector<std::pair<std::string, at::Generator>> result = {
      {"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (!parts.device.is_cpu()) {
    result.emplace_back("device", at::globalContext().defaultGenerator(parts.device));
  }
  return result;
}

TensorMap optimizer_tensors(const Parts& parts) {
  TensorMap tensors = parts.optimizer->state();
  tensors.merge(parts.scaler->state());
  return tensors;
}

/// What must be the same for a step number to mean the same samples.
nlohmann::json order(const JobConfig& job, const Parts& parts) {
  return {{"run.seed", job.run.seed},
          {"batch.global", job.batch.global},
          {"data.drop_last", job.data.drop_last},
          {"data.sampler", parts.order->text()},
          {"training samples", parts.train_data->size()}};
}

void require_same_order(const nlohmann::json& saved, const nlohmann::json& ours,
                        const std::filesystem::path& checkpoint) {
  std::string differences;
  for (const auto& [key, value] : ours.items()) {
    if (saved.at(key) != value) {
      differences += fmt::format("{}{} was {} and is {}", differences.empty() ? "" : "; ", key,
                                 saved.at(key).dump(), value.dump());
    }
  }
  if (differences.empty()) return;
  throw Error(Exit::kCheckpoint,
              "{}: the checkpoint is of another job: {}. Resume with the run's own recipe.toml",
              checkpoint.string(), differences);
}

}  // namespace

checkpoint::Snapshot snapshot(const JobConfig& job, const Parts& parts, const TrainState& state) {
  checkpoint::Snapshot result;
  result.step = state.step;
  result.tensors["model"] = nn::named_tensors(*parts.model);
  result.tensors["optimizer"] = optimizer_tensors(parts);
  if (parts.ema) result.tensors["ema"] = parts.ema->state();
  for (const auto& [name, generator] : generators(parts)) {
    result.tensors["random"][name] = generator.get_state();
  }
  result.state = {{"format", kFormat},
                  {"step", state.step},
                  {"evaluation_due", state.evaluation_due},
                  {"order", order(job, parts)},
                  {"schedule", parts.schedule->state()}};
  result.state["best"] = state.best ? nlohmann::json(*state.best) : nlohmann::json();
  return result;
}

TrainState restore(const std::filesystem::path& path, const JobConfig& job, Parts& parts) {
  const checkpoint::Snapshot saved = checkpoint::load_checkpoint(path);
  const auto copy = [&](const std::string& file, TensorMap into) {
    const auto found = saved.tensors.find(file);
    checkpoint::copy_into(found == saved.tensors.end() ? TensorMap{} : found->second, into,
                          (path / (file + ".safetensors")).string());
  };
  try {
    const nlohmann::json& state = saved.state;
    if (state.at("format") != kFormat) {
      throw Error(Exit::kCheckpoint, "{}: expected format {}, found {}", path.string(), kFormat,
                  state.at("format").dump());
    }
    require_same_order(state.at("order"), order(job, parts), path);
    copy("model", nn::named_tensors(*parts.model));
    copy("optimizer", optimizer_tensors(parts));
    if (parts.ema) copy("ema", parts.ema->state());
    for (auto& [name, generator] : generators(parts)) {
      const TensorMap& random = saved.tensors.at("random");
      if (random.contains(name)) generator.set_state(random.at(name));
    }
    parts.schedule->load(state.at("schedule"));

    TrainState result;
    result.step = state.at("step").get<int64_t>();
    result.evaluation_due = state.at("evaluation_due").get<bool>();
    if (!state.at("best").is_null()) result.best = state.at("best").get<double>();
    if (result.step < 0) throw Error(Exit::kCheckpoint, "{}: negative step", path.string());
    return result;
  } catch (const nlohmann::json::exception& problem) {
    throw Error(Exit::kCheckpoint, "{}: expected the state of a Brim run: {}",
                (path / "state.json").string(), problem.what());
  } catch (const std::out_of_range&) {
    throw Error(Exit::kCheckpoint, "{}: random.safetensors is missing", path.string());
  }
}

void require_finite_weights(const nn::Model& model, const std::filesystem::path& checkpoints) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : nn::named_tensors(model)) {
    if (!tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>()) continue;
    throw Error(Exit::kNumeric,
                "{} holds values that are not finite, so it is not saved; the last good checkpoint "
                "is kept in {}",
                name, checkpoints.string());
  }
}

}  // namespace brim::train
