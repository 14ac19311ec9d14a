#include "framework/train/stage_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/distributed/stage_cut.h"
#include "framework/nn/flops.h"
#include "framework/nn/stage.h"
#include "framework/nn/without_storage.h"
#include "framework/train/components.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/module_memory.h"
#include "framework/train/tuning/probe_job.h"

namespace brim::train {
namespace {

using distributed::MessageShape;
using distributed::PartCost;

constexpr const char* kPlan = "the cut into stages";

/// Samples of a micro-batch of the whole step; the largest that a rank sees.
int64_t micro_batch_size(const JobConfig& job, int64_t replicas) {
  const int64_t share = (*job.batch.global + replicas - 1) / replicas;
  return std::min(job.batch.micro_or_all(), share);
}

int64_t micro_batches_of(const JobConfig& job, int64_t replicas) {
  const int64_t share = (*job.batch.global + replicas - 1) / replicas;
  return (share + job.batch.micro_or_all() - 1) / job.batch.micro_or_all();
}

/// What can be told without the model.
void require_stages(const JobConfig& job, int64_t world) {
  const int64_t stages = job.distributed.stages;
  if (world % stages != 0) {
    throw Error(
        Exit::kRecipe,
        "[distributed] stages = {} does not divide the {} ranks: choose a number that does, "
        "or another number of ranks",
        stages, world);
  }
  const int64_t replicas = world / stages;
  const int64_t count = micro_batches_of(job, replicas);
  if (count >= stages) return;
  const int64_t share = (*job.batch.global + replicas - 1) / replicas;
  throw Error(
      Exit::kRecipe,
      "[distributed] stages = {} needs as many micro-batches of a step at least, so that all "
      "of them have work, found {} for {}. Set batch.micro to {} or less{}",
      stages, count == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", count),
      format_plural(share, "sample"), std::max<int64_t>(1, share / stages),
      share < stages ? ", and batch.global to more" : "");
}

nn::Sequence& require_sequence(const JobConfig& job, nn::Model& model) {
  auto* sequence = dynamic_cast<nn::Sequence*>(&model);
  const std::string_view name = job.model.model.selected();
  if (sequence == nullptr) {
    throw Error(Exit::kRecipe,
                "[distributed] stages = {} needs a model that is a sequence of parts "
                "(nn::Sequence): {} is none. Use distributed.strategy = \"fsdp\" to split it",
                job.distributed.stages, name);
  }
  const auto parts = static_cast<int64_t>(sequence->parts().size());
  if (parts >= job.distributed.stages) return *sequence;
  throw Error(Exit::kRecipe, "[distributed] stages = {}: {} has {} parts; expected at most so many",
              job.distributed.stages, name, parts);
}

/// Bytes of each parameter with its gradient, its optimizer's state and its average.
std::map<std::string, int64_t> state_bytes(const TrainingComponents& components) {
  std::map<std::string, int64_t> bytes;
  for (const auto& item : components.model.module->named_parameters()) {
    const auto own = static_cast<int64_t>(item.value().nbytes());
    bytes[item.key()] =
        own * (1 + int{item.value().requires_grad()} + int{components.ema != nullptr});
  }
  for (const auto& [name, tensor] : components.optimizer->state()) {
    const auto found = bytes.find(distributed::after_dot(name));
    if (found != bytes.end()) found->second += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

int64_t held_bytes(const ModuleMemory& memory) {
  int64_t bytes = 0;
  for (const auto& module : memory.held()) bytes += module.bytes;
  return bytes;
}

/// A part's products, each of which training runs three times.
std::vector<double> products(const nn::Sequence& model, const at::Tensor& inputs) {
  const at::NoGradGuard no_grad;
  std::vector<double> flops;
  at::Tensor x = inputs;
  for (const nn::Part& part : model.parts()) {
    const nn::FlopCounter counter;
    x = part.forward(x);
    flops.push_back(static_cast<double>(nn::kTrainingPasses * counter.total()));
  }
  return flops;
}

MessageShape shape_between(const at::Tensor& x, int64_t samples, const std::string& part) {
  if (x.dim() < 1 || x.size(0) != samples || !x.is_floating_point()) {
    throw Error(Exit::kBug, "the model's part {} gives no tensor with the samples first", part);
  }
  return {.sizes = x.sizes().slice(1).vec(),
          .type = x.scalar_type(),
          .is_channels_last = x.dim() == 4 && !x.is_contiguous() &&
                              x.is_contiguous(at::MemoryFormat::ChannelsLast)};
}

struct Trial {
  std::vector<PartCost> parts;
  std::vector<MessageShape> outputs;  // of each part
};

/// A micro-batch through all parts, of which only shapes are computed. Beside products a part's
/// work is to write what it keeps and to read its weights, a byte an operation.
Trial try_parts(const TrainingComponents& components, nn::Sequence& model,
                const at::Tensor& inputs) {
  model.train();
  const auto bytes = state_bytes(components);
  const nn::WithoutStorage without_storage;
  model.begin(inputs);
  const std::vector<double> flops = products(model, inputs);
  Trial trial;
  const amp::Autocast autocast(at::kCPU, components.model.precision);
  const ModuleMemory memory(model, at::kCPU);
  at::Tensor x = inputs;
  for (size_t i = 0; i < model.parts().size(); ++i) {
    const nn::Part& part = model.parts()[i];
    const int64_t before = held_bytes(memory);
    x = part.forward(x);
    PartCost cost{.name = part.name, .activation_bytes = held_bytes(memory) - before};
    int64_t state = 0;
    for (const auto& [name, size] : bytes) {
      if (!nn::reads(part, name)) continue;
      cost.state_bytes[name] = size;
      state += size;
    }
    cost.work = flops[i] + static_cast<double>(cost.activation_bytes + state);
    trial.parts.push_back(std::move(cost));
    trial.outputs.push_back(i + 1 < model.parts().size()
                                ? shape_between(x, inputs.size(0), part.name)
                                : MessageShape{});
  }
  return trial;
}

/// The places of the parts that the recipe names.
std::vector<size_t> given_cut(const std::vector<std::string>& names,
                              const std::vector<PartCost>& parts) {
  std::vector<size_t> cut = {0};
  for (const std::string& name : names) {
    const auto found = std::ranges::find(parts, name, &PartCost::name);
    if (found == parts.end()) {
      std::string all;
      for (const PartCost& part : parts) all += (all.empty() ? "" : ", ") + part.name;
      throw Error(Exit::kRecipe, "[distributed] cut: \"{}\" is no part of this model, which has {}",
                  name, all);
    }
    cut.push_back(static_cast<size_t>(found - parts.begin()));
    if (cut.back() > cut[cut.size() - 2]) continue;
    throw Error(
        Exit::kRecipe,
        "[distributed] cut: \"{}\" begins no later than the stage before it; expected parts "
        "in the model's order",
        name);
  }
  return cut;
}

double slowest_share(const std::vector<PartCost>& parts, const std::vector<size_t>& cut) {
  std::vector<double> work(cut.size());
  for (size_t i = 0, stage = 0; i < parts.size(); ++i) {
    if (stage + 1 < cut.size() && i == cut[stage + 1]) ++stage;
    work[stage] += parts[i].work;
  }
  return std::ranges::max(work) / std::accumulate(work.begin(), work.end(), 0.0);
}

StagePlan choose_cut(const JobConfig& job, const Trial& trial, int64_t micro_batches,
                     int64_t cap_bytes) {
  const int64_t stages = job.distributed.stages;
  StagePlan plan;
  if (job.distributed.cut.empty()) {
    distributed::CutOptions options{.stages = stages, .cap_bytes = cap_bytes};
    for (int64_t stage = 0; stage < stages; ++stage) {
      options.live.push_back(
          distributed::live_micro_batches(job.distributed.schedule, stages, stage, micro_batches));
    }
    plan.cut = distributed::cut_into_stages(trial.parts, options);
  } else {
    plan.cut = given_cut(job.distributed.cut, trial.parts);
  }
  for (size_t stage = 1; stage < plan.cut.size(); ++stage) {
    plan.boundaries.push_back(trial.outputs[plan.cut[stage] - 1]);
  }
  plan.lines = distributed::describe_cut(trial.parts, plan.cut);
  plan.slowest_share = slowest_share(trial.parts, plan.cut);
  return plan;
}

StagePlan plan_alone(JobConfig& job, c10::Device device, int64_t world, int64_t cap_bytes,
                     IfNoneFits if_none_fits) {
  require_stages(job, world);
  const int64_t replicas = world / job.distributed.stages;
  const int64_t micro_batches = micro_batches_of(job, replicas);
  const int64_t micro = micro_batch_size(job, replicas);
  ProbeJob probe(job, shape_of(job));
  probe.set_size(micro, /*micro_batches=*/1, /*parts=*/1);
  const TrainingComponents components =
      build_components(job, device, distributed::Group::alone(), Weights::kNone);
  Timeline timeline;
  const auto inputs =
      Inputs(job, components.data, components.model).training(0, micro, nullptr, timeline);
  return cut_model(job, components, inputs->next()->tensors.inputs.to(at::kCPU), micro_batches,
                   cap_bytes, if_none_fits);
}

nlohmann::json to_json(const MessageShape& shape) {
  return {shape.sizes, static_cast<int>(shape.type), shape.is_channels_last};
}

}  // namespace

StagePlan cut_model(const JobConfig& job, const TrainingComponents& whole, const at::Tensor& inputs,
                    int64_t micro_batches, int64_t cap_bytes, IfNoneFits if_none_fits) {
  nn::Sequence& model = require_sequence(job, *whole.model.module);
  const Trial trial = try_parts(whole, model, inputs);
  try {
    return choose_cut(job, trial, micro_batches, cap_bytes);
  } catch (const Error& error) {
    if (error.status() != Exit::kResource || if_none_fits == IfNoneFits::kRefuse) throw;
  }
  return choose_cut(job, trial, micro_batches, /*cap_bytes=*/0);
}

int64_t data_parts(const distributed::DistributedConfig& config, int64_t world) {
  const int64_t stages = config.stages;
  return stages == 1 || world == 1 || world % stages != 0 ? world : world / stages;
}

StagePlan plan_stages(JobConfig& job, c10::Device device, distributed::Group& group,
                      const device::Memory& memory, IfNoneFits if_none_fits) {
  if (!job.distributed.is_pipeline() || group.is_single_rank()) return {};
  int64_t cap_bytes = memory.stats().cap_bytes;
  for (const std::string& text : group.all_gather(std::to_string(cap_bytes), kPlan)) {
    cap_bytes = std::min<int64_t>(cap_bytes, std::stoll(text));
  }
  StagePlan plan;
  group.all_or_none(kPlan, [&] {
    if (group.is_main()) plan = plan_alone(job, device, group.world(), cap_bytes, if_none_fits);
  });
  nlohmann::json json = {plan.cut, nlohmann::json::array(), plan.lines};
  for (const MessageShape& shape : plan.boundaries) json[1].push_back(to_json(shape));
  json = nlohmann::json::parse(group.broadcast(json.dump(), kPlan));
  json[0].get_to(plan.cut);
  json[2].get_to(plan.lines);
  plan.boundaries.clear();
  for (const auto& shape : json[1]) {
    plan.boundaries.push_back({.sizes = shape[0].get<std::vector<int64_t>>(),
                               .type = static_cast<at::ScalarType>(shape[1].get<int>()),
                               .is_channels_last = shape[2].get<bool>()});
  }
  return plan;
}

std::shared_ptr<distributed::Pipeline> take_stage(const StagePlan& plan,
                                                  const std::shared_ptr<distributed::Group>& group,
                                                  std::shared_ptr<nn::Model>& model) {
  const auto whole = std::dynamic_pointer_cast<nn::Sequence>(model);
  const size_t stages = plan.cut.size();
  const auto end_of = [&](size_t stage) {
    return stage + 1 < stages ? plan.cut[stage + 1] : whole->parts().size();
  };
  std::vector<distributed::StageLayout> layouts(stages);
  for (size_t stage = 0; stage < stages; ++stage) {
    if (stage + 1 < stages) layouts[stage].outputs = plan.boundaries[stage];
    for (const auto& item : nn::named_tensors(*whole)) {
      for (size_t i = plan.cut[stage]; i < end_of(stage); ++i) {
        if (nn::reads(whole->parts()[i], item.first)) layouts[stage].tensors.insert(item.first);
      }
    }
  }
  const size_t own = static_cast<size_t>(group->rank()) % stages;
  model = std::make_shared<nn::Stage>(whole, plan.cut[own], end_of(own));
  return std::make_shared<distributed::Pipeline>(group, std::move(layouts),
                                                 model->named_parameters().pairs());
}

}  // namespace brim::train
