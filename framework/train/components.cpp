#include "framework/train/components.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/base/version.h"
#include "framework/data/order/cost_balanced.h"
#include "framework/data/order/plan.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/memory/advice.h"
#include "framework/distributed/sharded_optimizer.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/fused/upcast.h"
#include "framework/nn/measured_forms.h"
#include "framework/nn/stage.h"
#include "framework/nn/without_storage.h"
#include "framework/optim/parameter_groups.h"
#include "framework/telemetry/run_record.h"
#include "framework/train/build_model.h"
#include "framework/train/input_shape.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/stage_plan.h"
#include "framework/train/weights/layer_decay.h"

namespace brim::train {
namespace {

/// The ranks of a machine share its cores, unless the launcher has said how.
void share_cores(const distributed::Ranks& ranks) {
  if (ranks.local_world == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int64_t cores = usable_cores() / ranks.local_world;
  at::set_num_threads(static_cast<int>(std::max<int64_t>(1, cores)));
}

/// LibTorch then takes only algorithms that give the same bits each time, and throws where an
/// operator has none.
void require_determinism() {
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // cuBLAS asks for it
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

/// fp16 scales its loss. With on_nan = "skip" the other modes get a scaler that stays at 1, for its
/// check of the gradients.
std::unique_ptr<amp::GradScaler> make_scaler(const JobConfig& job,
                                             const TrainingComponents& components) {
  if (components.model.precision.scaler || job.train.on_nan == OnNan::kFail) {
    return std::make_unique<amp::GradScaler>(components.model.device, job.precision.scaler,
                                             components.model.precision.scaler);
  }
  const amp::GradScalerConfig only_check = {
      .init_scale = 1.0, .growth_factor = 1.0, .backoff_factor = 1.0, .min_scale = 1.0};
  return std::make_unique<amp::GradScaler>(components.model.device, only_check, true);
}

void open_data(const JobConfig& job, TrainingComponents& components) {
  components.data.train = job.data.open_train();
  components.model.input = input_shape(*components.data.train, job.data);
  components.data.order = job.data.order(*components.data.train,
                                         {static_cast<uint64_t>(job.run.seed), *job.batch.global});
  if (job.distributed.balance == distributed::Balance::kCost &&
      !components.model.group->is_single_rank()) {
    components.data.order =
        data::cost_balanced_order(components.data.order, *components.data.train, *job.batch.global,
                                  components.model.group->world());
  }
  if (job.eval.enabled) components.data.eval = job.data.open_eval();
  data::check_evaluation(*components.data.train, components.data.eval.get());
  const optim::RunLength run = run_length(job, components.data.train->size());
  components.data.steps_per_epoch = run.steps_per_epoch;
  components.total_steps = run.steps;
}

/// Throws Error(kRecipe) where the model or the task takes something else than the data give.
void require_kind(const JobConfig& job, const nn::ModelShape& input) {
  const nn::InputKind kind = input.kind();
  const auto require = [&](bool takes_it, std::string_view who) {
    if (takes_it) return;
    const auto other =
        kind == nn::InputKind::kImages ? nn::InputKind::kTokens : nn::InputKind::kImages;
    throw Error(Exit::kRecipe, "{} takes {}, but [data] kind = \"{}\" gives {}", who,
                kind_name(other), job.data.source.selected(), kind_name(kind));
  };
  require(job.model.model->takes(kind), job.model.model.selected());
  require(job.train.task->takes(kind),
          fmt::format("train.task = \"{}\"", job.train.task.selected()));
  if (!input.has_documents || job.model.model->takes_documents()) return;
  throw Error(Exit::kRecipe,
              "{} takes rows of plain tokens, but [data] gives rows that hold documents. Use "
              "packing = \"stream\", or a model whose takes_documents() is true",
              job.model.model.selected());
}

std::unique_ptr<optim::Optimizer> build_optimizer(const JobConfig& job,
                                                  const TrainingComponents& components) {
  const optim::OptimizerConfig& config = *job.optimizer.optimizer;
  auto groups = optim::decay_groups(components.model.own_parameters(), job.optimizer.weight_decay);
  if (job.optimizer.layer_decay < 1) {
    groups =
        decay_by_layer(groups, nn::whole_of(*components.model.module), job.optimizer.layer_decay);
  }
  if (!job.distributed.zero || components.model.group->is_single_rank())
    return config.build(std::move(groups));
  return std::make_unique<distributed::ShardedOptimizer>(
      components.model.group, *components.model.module, std::move(groups), config.is_element_wise(),
      static_cast<int64_t>(job.distributed.gradients.bucket_mib * (1 << 20)),
      [&config](std::vector<optim::ParameterGroup> own) { return config.build(std::move(own)); });
}

/// The model and what is as large as it: the optimizer's state and the moving average.
void build_weights(const JobConfig& job, Weights weights, c10::Device device,
                   const StagePlan* stages, TrainingComponents& components) {
  build_model(job, weights, device, stages, components.model);
  components.optimizer = build_optimizer(job, components);
  if (job.train.ema > 0) {
    components.ema = std::make_unique<optim::Ema>(components.model.own_parameters(), job.train.ema);
  }
}

/// Throws Error(kResource) where those can't be in memory; leaves none of them in `components`.
void require_room(const JobConfig& job, const device::Memory& memory, const StagePlan* stages,
                  TrainingComponents& components) {
  const int64_t cache_bytes = components.model.device.is_cpu() ? job.data.source->cache_bytes() : 0;
  require_room_beside_cache(cache_bytes, memory);
  {
    const nn::WithoutStorage without_storage;
    build_weights(job, Weights::kOfCheckpoint, c10::kCPU, stages, components);
  }
  const MemoryAccount account = memory_account(job.checkpoint, components, memory);
  components.ema.reset();
  components.optimizer.reset();
  components.model.sharded.reset();
  components.model.pipeline.reset();
  components.model.module.reset();
  const int64_t limit_bytes = std::max<int64_t>(0, memory.stats().cap_bytes - cache_bytes);
  const int64_t bytes = account.parameters_bytes + account.gradients_bytes +
                        account.optimizer_bytes + account.ema_bytes + account.checkpoint_bytes;
  if (bytes <= limit_bytes) return;
  throw Error(Exit::kResource,
              "the model itself does not fit in memory: expected at most {} of tensors, found {} "
              "before any activation ({}). Choose a smaller model, or {}",
              format_bytes(limit_bytes), format_bytes(bytes), account.state_text(),
              device::more_memory());
}

/// "cpu", or "4 ranks of cuda".
std::string where(const TrainingComponents& components) {
  if (components.model.group->is_single_rank()) return components.model.device.str();
  return fmt::format("{} ranks of {}", components.model.group->world(),
                     c10::DeviceTypeName(components.model.device.type(), /*lower_case=*/true));
}

/// A line for each option that the recipe changes and that has no effect in this job.
std::vector<std::string> options_without_effect(const JobConfig& job,
                                                const TrainingComponents& components) {
  const amp::GradScalerConfig& scaler = job.precision.scaler;
  const amp::GradScalerConfig usual;
  const OptimizerSection usual_optimizer;
  const bool is_single_rank = components.model.group->is_single_rank();
  std::vector<std::string> notes;
  const auto note = [&notes](bool has_no_effect, std::string text) {
    if (has_no_effect) notes.push_back(std::move(text));
  };
  note(!components.model.precision.scaler && !(scaler == usual),
       "[precision.scaler] has no effect: only fp16 scales its gradients");
  note(job.train.steps.has_value() && job.train.epochs.has_value(),
       "train.epochs has no effect: train.steps is given; train.steps = \"auto\" trains by epochs");
  note(job.optimizer.batch_rule == BatchRule::kNone &&
           job.optimizer.base_batch != usual_optimizer.base_batch,
       "optimizer.base_batch has no effect: batch_rule = \"none\"");
  const std::string_view optimizer = job.optimizer.optimizer.selected();
  note((optimizer == "lars" || optimizer == "lamb") && job.optimizer.weight_decay == 0,
       fmt::format("optimizer.name = \"{}\" scales no parameter: it scales those that weight_decay "
                   "applies to, and that is 0",
                   optimizer));
  const std::string no_graph = no_cuda_graph(job, components.model);
  note(job.train.cuda_graph && !no_graph.empty(), "train.cuda_graph has no effect: " + no_graph);
  note(components.model.input.kind() == nn::InputKind::kTokens && job.data.augment.mix.mixes(),
       "[data.augment] mixup and cutmix have no effect: the data are tokens");
  note(is_single_rank && !(job.distributed == distributed::DistributedConfig{}),
       "[distributed] has no effect: there is one rank");
  note(job.distributed.sync_batch_norm && !is_single_rank && !components.model.has_sync_batch_norm,
       "[distributed] sync_batch_norm has no effect: the model has no brim::nn::BatchNorm2d");
  note(components.data.eval == nullptr && job.eval.every_epochs != EvalConfig{}.every_epochs,
       "eval.every_epochs has no effect: there is no evaluation");
  note(!job.checkpoint.enabled &&
           (job.checkpoint.every_steps > 0 || job.checkpoint.every_minutes > 0),
       "checkpoint.every_steps and every_minutes have no effect: checkpoint.enabled is false");
  note(!is_single_rank && !components.model.pipeline &&
           job.distributed.schedule != distributed::DistributedConfig{}.schedule,
       "distributed.schedule has no effect: stages = 1");
  note(components.model.pipeline && components.model.data_world() == 1 &&
           !(job.distributed.gradients == distributed::DataParallelOptions{}),
       "distributed.compress, bucket_mib, static_graph and unused_parameters have no effect: each "
       "stage has one rank, which sums no gradients with others");
  note(components.model.sharded && job.telemetry.histograms_every_steps > 0,
       "telemetry.histograms_every_steps has no effect: strategy = \"fsdp\" leaves no rank a whole "
       "gradient");
  note(components.model.sharded &&
           job.distributed.gradients.bucket_mib != distributed::DataParallelOptions{}.bucket_mib,
       "distributed.bucket_mib has no effect: fsdp sums a block's gradients at a time");
  note(!job.telemetry.tensorboard && job.telemetry.histograms_every_steps > 0,
       "telemetry.histograms_every_steps has no effect: telemetry.tensorboard is false");
  return notes;
}

}  // namespace

std::unique_ptr<Task> build_task(const TrainConfig& config, const nn::ModelShape& input) {
  auto task = config.task->build({.input = input, .label_smoothing = config.label_smoothing});
  const char* problem = nullptr;
  if (task == nullptr) {
    problem = "build() returned no task";
  } else if (task->best_by().metric.empty()) {
    problem = "best_by() names no metric: expected one of those that metrics() gives";
  }
  if (problem == nullptr) return task;
  throw Error(Exit::kRecipe, "train.task = \"{}\": {}", config.task.selected(), problem);
}

std::string device_and_versions(c10::Device device) {
  std::string name = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (device.is_cpu()) {
    static const auto cpu = telemetry::machine_record().at("cpu").get<std::string>();
    name = fmt::format("{} with {}{}", cpu, at::get_cpu_capability(),
                       amp::cpu_abilities().cpu_bf16 ? " and bf16" : "");
  } else if (device.is_cuda()) {
    name = device::cuda().backend->name(device.index());
  }
  return fmt::format("{}, Brim {} {}, LibTorch {}", name, brim_version(), brim_commit(),
                     TORCH_VERSION);
}

amp::Abilities abilities(c10::Device device) {
  amp::Abilities result = amp::cpu_abilities();
  result.cpu_bf16 &= nn::multiplies_bf16_faster();
  if (device.is_cuda()) {
    result.compute_capability = device::cuda().backend->compute_capability(device.index());
  }
  return result;
}

bool has_statistics(const nn::Model& model) { return !model.buffers().empty(); }

std::string_view precision_name(const amp::Precision& precision) {
  if (precision.compute == at::kBFloat16) return "bf16";
  if (precision.compute == at::kHalf) return "fp16";
  if (precision.compute == at::kDouble) return "fp64";
  return precision.tf32 ? "tf32" : "fp32";
}

TrainingComponents build_components(const JobConfig& job, c10::Device device,
                                    std::shared_ptr<distributed::Group> group, Weights weights,
                                    const device::Memory* memory, const StagePlan* stages) {
  TrainingComponents components;
  components.model.group = std::move(group);
  components.model.device = device;
  share_cores(components.model.group->ranks());
  if (job.run.deterministic) require_determinism();
  // cuDNN tries its algorithms at the first sight of a shape and keeps the fastest. Which one that
  // is may differ from run to run, and with it the last bits.
  at::globalContext().setBenchmarkCuDNN(device.is_cuda() && !job.run.deterministic);
  const std::filesystem::path forms = cache_folder("forms");
  const std::string measured_on = device_and_versions(device);
  nn::share_measured_forms(
      forms.empty() ? forms : forms / (digest(std::as_bytes(std::span(measured_on))) + ".tsv"));
  if (device.is_cpu()) nn::choose_products(fused_forms(job));
  components.model.precision = amp::resolve(job.precision.mode, components.model.device.type(),
                                            abilities(components.model.device));
  amp::apply_tf32(components.model.precision);

  open_data(job, components);
  require_kind(job, components.model.input);
  if (memory != nullptr) require_room(job, *memory, stages, components);
  {
    std::optional<nn::WithoutStorage> without_storage;
    if (weights == Weights::kNone) without_storage.emplace();
    build_weights(job, weights, without_storage ? c10::Device(c10::kCPU) : device, stages,
                  components);
  }
  // Where a sample that can't be read is replaced, every stage must see so itself.
  if (components.model.pipeline && !components.model.pipeline->is_first() && !job.data.skip_bad) {
    components.data.train = data::labels_alone(std::move(components.data.train));
    components.data.eval = data::labels_alone(std::move(components.data.eval));
  }
  components.task = build_task(job.train, components.model.input);
  components.schedule = build_schedule(
      job, {.steps = components.total_steps, .steps_per_epoch = components.data.steps_per_epoch});
  components.scaler = make_scaler(job, components);
  return components;
}

std::string no_cuda_graph(const JobConfig& job, const RankModel& model) {
  if (!model.device.is_cuda()) return "the device is no GPU";
  if (!job.train.recompute.empty()) {
    return "blocks named in train.recompute set the random generator, which can't be recorded";
  }
  if (model.group->is_single_rank()) return "";
  const distributed::DistributedConfig& ranks = job.distributed;
  if (model.sharded || ranks.zero) return "ranks bring each other weights while passes run";
  if (model.has_sync_batch_norm) return "synchronized batch norms add up while passes run";
  if (ranks.gradients.unused_parameters || ranks.gradients.static_graph) {
    return "LibTorch's reducer looks for unused parameters in passes";
  }
  if (ranks.balance == distributed::Balance::kThroughput) {
    return "distributed.balance = \"throughput\" changes the sizes of passes";
  }
  return "";
}

std::vector<std::string> describe(const JobConfig& job, const TrainingComponents& components) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}: {}, {} parameters, on {} in {}{}", job.run.name,
                              job.model.model.selected(), format_count(components.model.parameters),
                              where(components), precision_name(components.model.precision),
                              components.model.channels_last ? ", channels_last" : ""));
  lines.push_back(fmt::format("data: {} training and {} evaluation samples of {}",
                              format_count(components.data.train->size()),
                              format_count(components.data.eval ? components.data.eval->size() : 0),
                              text_of(components.model.input)));
  if (components.model.sharded) lines.push_back("fsdp: " + components.model.sharded->text());
  lines.insert(lines.end(), components.model.stage_lines.begin(),
               components.model.stage_lines.end());
  if (!job.model.freeze.empty()) {
    lines.push_back(fmt::format("frozen: all but {} parameters",
                                format_count(components.model.trained_parameters)));
  }
  const int64_t micro = job.batch.micro_or_all();
  lines.push_back(
      fmt::format("plan: {} of {}{}, {} an epoch", format_plural(components.total_steps, "step"),
                  format_plural(*job.batch.global, "sample"),
                  micro < *job.batch.global ? fmt::format(" in micro-batches of up to {}", micro)
                                            : std::string(),
                  format_plural(components.data.steps_per_epoch, "step")));
  if (job.optimizer.batch_rule != BatchRule::kNone) {
    lines.push_back(fmt::format("learning rate: {}, {} × {}({} / {})",
                                format_number(peak_learning_rate(job)),
                                format_number(job.optimizer.learning_rate),
                                job.optimizer.batch_rule == BatchRule::kSqrt ? "√" : "",
                                *job.batch.global, job.optimizer.base_batch));
  }
  if (!components.model.precision.note.empty())
    lines.push_back("note: " + components.model.precision.note);
  for (const auto& note : options_without_effect(job, components)) lines.push_back("note: " + note);
  const std::string no_fall = no_plateau(job, components.data.eval != nullptr);
  if (!no_fall.empty()) lines.push_back("warning: " + no_fall);
  return lines;
}

}  // namespace brim::train
