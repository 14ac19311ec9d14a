#include "framework/train/parts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "framework/base/log.h"
#include "framework/base/machine.h"
#include "framework/base/random.h"
#include "framework/base/units.h"
#include "framework/data/cost_balanced.h"
#include "framework/data/plan.h"
#include "framework/device/cuda_loader.h"
#include "framework/distributed/sharded_optimizer.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/block.h"
#include "framework/nn/fused.h"
#include "framework/nn/without_storage.h"
#include "framework/optim/parameter_groups.h"
#include "framework/train/input_shape.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/weights/layer_decay.h"
#include "framework/train/weights/pretrained.h"

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

/// 90 for compute capability 9.0; what the CPU can do.
amp::Abilities abilities(c10::Device device) {
  amp::Abilities result = amp::cpu_abilities();
  if (device.is_cuda()) {
    result.compute_capability = device::cuda().backend->compute_capability(device.index());
  }
  return result;
}

/// fp16 scales its loss. With on_nan = "skip" the other modes get a scaler that stays at 1, for its
/// check of the gradients.
std::unique_ptr<amp::GradScaler> make_scaler(const JobConfig& job, const Parts& parts) {
  if (parts.precision.scaler || job.train.on_nan == OnNan::kFail) {
    return std::make_unique<amp::GradScaler>(parts.device, job.precision.scaler,
                                             parts.precision.scaler);
  }
  const amp::GradScalerConfig only_check = {
      .initial_scale = 1.0, .growth_factor = 1.0, .backoff_factor = 1.0, .minimum_scale = 1.0};
  return std::make_unique<amp::GradScaler>(parts.device, only_check, true);
}

void open_data(const JobConfig& job, Parts& parts) {
  parts.train_data = job.data.open_train();
  parts.input = input_shape(*parts.train_data, job.data);
  parts.order =
      job.data.order(*parts.train_data, {static_cast<uint64_t>(job.run.seed), *job.batch.global});
  if (job.distributed.balance == distributed::Balance::kCost) {
    parts.order = data::cost_balanced_order(parts.order, *parts.train_data, *job.batch.global,
                                            parts.group->world());
  }
  if (job.eval.enabled) parts.eval_data = job.data.source->open_eval();
  parts.steps_per_epoch =
      data::steps_per_epoch(parts.train_data->size(), *job.batch.global, job.data.drop_last);
  if (parts.steps_per_epoch == 0) {
    throw Error(Exit::kRecipe,
                "[data] drop_last = true leaves no step: {} training samples, [batch] global = {}",
                parts.train_data->size(), *job.batch.global);
  }
  parts.total_steps = job.train.steps.value_or(job.train.epochs * parts.steps_per_epoch);
}

uint64_t rank_seed(const JobConfig& job, int64_t rank) {
  return philox(static_cast<uint64_t>(job.run.seed), static_cast<uint64_t>(rank), 0)[0];
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

/// On `device`, which is the CPU's for weights that are never needed.
void build_model(const JobConfig& job, Weights weights, c10::Device device, Parts& parts) {
  at::manual_seed(job.run.seed);
  parts.model = job.model.model->build(parts.input);
  if (weights != Weights::kOfCheckpoint && !job.model.pretrained.empty()) {
    load_pretrained(*parts.model, job.model.model->weight_names(), job.model.pretrained,
                    job.model.strict);
  }
  if (!job.model.freeze.empty()) freeze(*parts.model, job.model.freeze);
  // Dropout differs from rank to rank.
  if (!parts.group->is_first()) at::manual_seed(rank_seed(job, parts.group->rank()));
  parts.model->to(device, parts.precision.parameters());
  const auto parameters = parts.model->parameters();
  const bool has_images_inside =
      std::ranges::any_of(parameters, [](const at::Tensor& w) { return w.dim() == 4; });
  parts.channels_last = job.precision.channels_last && has_images_inside;
  if (parts.channels_last) nn::use_channels_last(*parts.model);
  nn::use_fused(*parts.model, job.precision.fused);
  nn::recompute(*parts.model, job.train.recompute);
  if (job.distributed.sync_batch_norm && !parts.group->is_alone()) {
    const int64_t count =
        nn::synchronize_batch_norms(*parts.model, [group = parts.group](const at::Tensor& sums) {
          group->all_reduce(sums, distributed::Reduce::kSum, "the statistics of batch norms");
        });
    parts.norms_wait = count > 0;
  }
}

std::unique_ptr<optim::Optimizer> build_optimizer(const JobConfig& job, const Parts& parts) {
  const optim::OptimizerConfig& config = *job.optimizer.optimizer;
  auto groups =
      optim::decay_groups(parts.model->named_parameters().pairs(), job.optimizer.weight_decay);
  if (job.optimizer.layer_decay < 1) {
    groups = decay_by_layer(groups, *parts.model, job.optimizer.layer_decay);
  }
  if (!job.distributed.zero || parts.group->is_alone()) return config.build(std::move(groups));
  return std::make_unique<distributed::ShardedOptimizer>(
      parts.group, std::move(groups), config.is_element_wise(),
      static_cast<int64_t>(job.distributed.gradients.bucket_mib * (1 << 20)),
      [&config](std::vector<optim::ParameterGroup> own) { return config.build(std::move(own)); });
}

/// The model and what is as large as it: the optimizer's state and the moving average.
void build_weights(const JobConfig& job, Weights weights, c10::Device device, Parts& parts) {
  build_model(job, weights, device, parts);
  parts.optimizer = build_optimizer(job, parts);
  if (job.train.ema > 0) {
    parts.ema =
        std::make_unique<optim::Ema>(parts.model->named_parameters().pairs(), job.train.ema);
  }
}

/// Throws Error(kResource) where those can't be in memory; leaves none of them in `parts`.
void require_room(const JobConfig& job, const device::Memory& memory, Parts& parts) {
  const int64_t cache_bytes = parts.device.is_cpu() ? job.data.source->cache_bytes() : 0;
  require_room_beside_cache(cache_bytes, memory);
  {
    const nn::WithoutStorage without_storage;
    build_weights(job, Weights::kOfCheckpoint, c10::kCPU, parts);
  }
  const MemoryAccount account = memory_account(job, parts, memory);
  parts.ema.reset();
  parts.optimizer.reset();
  parts.model.reset();
  const int64_t limit_bytes = std::max<int64_t>(0, memory.stats().cap_bytes - cache_bytes);
  const int64_t bytes = account.parameters_bytes + account.gradients_bytes +
                        account.optimizer_bytes + account.ema_bytes + account.checkpoint_bytes;
  if (bytes <= limit_bytes) return;
  throw Error(Exit::kResource,
              "the model itself does not fit in memory: expected at most {} of tensors, found {} "
              "before any activation ({}). Choose a smaller model, or give the job more memory "
              "(device.memory_gib)",
              format_bytes(limit_bytes), format_bytes(bytes), account.state_text());
}

int64_t count_parameters(const nn::Model& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// "cpu", or "4 ranks of cuda".
std::string where(const Parts& parts) {
  if (parts.group->is_alone()) return parts.device.str();
  return fmt::format("{} ranks of {}", parts.group->world(),
                     c10::DeviceTypeName(parts.device.type(), /*lower_case=*/true));
}

/// A line for each option that the recipe changes and that has no effect in this job.
std::vector<std::string> options_without_effect(const JobConfig& job, const Parts& parts) {
  const amp::GradScalerConfig& scaler = job.precision.scaler;
  const amp::GradScalerConfig usual;
  const OptimizerSection usual_optimizer;
  const bool is_alone = parts.group->is_alone();
  std::vector<std::string> notes;
  const auto note = [&notes](bool has_no_effect, std::string text) {
    if (has_no_effect) notes.push_back(std::move(text));
  };
  note(!parts.precision.scaler && !(scaler == usual),
       "[precision.scaler] has no effect: only fp16 scales its gradients");
  note(job.train.steps.has_value() && job.train.epochs != TrainConfig{}.epochs,
       "train.epochs has no effect: train.steps is given");
  note(job.optimizer.batch_rule == BatchRule::kNone &&
           job.optimizer.base_batch != usual_optimizer.base_batch,
       "optimizer.base_batch has no effect: batch_rule = \"none\"");
  const std::string no_graph = no_cuda_graph(job, parts);
  note(job.train.cuda_graph && !no_graph.empty(), "train.cuda_graph has no effect: " + no_graph);
  note(parts.input.kind() == nn::InputKind::kTokens && job.data.augment.mix.mixes(),
       "[data.augment] mixup and cutmix have no effect: the data are tokens");
  note(is_alone && !(job.distributed == distributed::DistributedConfig{}),
       "[distributed] has no effect: there is one rank");
  note(job.distributed.sync_batch_norm && !is_alone && !parts.norms_wait,
       "[distributed] sync_batch_norm has no effect: the model has no brim::nn::BatchNorm2d");
  note(parts.eval_data == nullptr && job.eval.every_epochs != EvalConfig{}.every_epochs,
       "eval.every_epochs has no effect: there is no evaluation");
  note(!job.checkpoint.enabled &&
           (job.checkpoint.every_steps > 0 || job.checkpoint.every_minutes > 0),
       "checkpoint.every_steps and every_minutes have no effect: checkpoint.enabled is false");
  note(!job.telemetry.tensorboard && job.telemetry.histograms_every_steps > 0,
       "telemetry.histograms_every_steps has no effect: telemetry.tensorboard is false");
  return notes;
}

}  // namespace

void keep_norms_apart(Parts& parts) {
  if (!parts.norms_wait) return;
  nn::synchronize_batch_norms(*parts.model, [](const at::Tensor&) {});
  parts.norms_wait = false;
}

bool has_statistics(const nn::Model& model) { return !model.buffers().empty(); }

std::string_view precision_name(const amp::Precision& precision) {
  if (precision.compute == at::kBFloat16) return "bf16";
  if (precision.compute == at::kHalf) return "fp16";
  if (precision.compute == at::kDouble) return "fp64";
  return precision.tf32 ? "tf32" : "fp32";
}

Parts build_parts(const JobConfig& job, c10::Device device,
                  std::shared_ptr<distributed::Group> group, Weights weights,
                  const device::Memory* memory) {
  Parts parts;
  parts.group = std::move(group);
  parts.device = device;
  share_cores(parts.group->ranks());
  if (job.run.deterministic) require_determinism();
  // cuDNN tries its algorithms at the first sight of a shape and keeps the fastest. Which one that
  // is may differ from run to run, and with it the last bits.
  at::globalContext().setBenchmarkCuDNN(device.is_cuda() && !job.run.deterministic);
  parts.precision = amp::resolve(job.precision.mode, parts.device.type(), abilities(parts.device));
  amp::apply_tf32(parts.precision);

  open_data(job, parts);
  require_kind(job, parts.input);
  if (memory != nullptr) require_room(job, *memory, parts);
  {
    std::optional<nn::WithoutStorage> without_storage;
    if (weights == Weights::kNone) without_storage.emplace();
    build_weights(job, weights, without_storage ? c10::Device(c10::kCPU) : device, parts);
  }
  parts.task =
      job.train.task->build({.input = parts.input, .label_smoothing = job.train.label_smoothing});
  parts.schedule = job.schedule.schedule->build(
      peak_learning_rate(job),
      {.steps = std::max(parts.total_steps, job.schedule.steps.value_or(0)),
       .steps_per_epoch = parts.steps_per_epoch});
  parts.scaler = make_scaler(job, parts);
  return parts;
}

std::string no_cuda_graph(const JobConfig& job, const Parts& parts) {
  if (!parts.device.is_cuda()) return "the device is no GPU";
  if (!parts.group->is_alone()) return "ranks sum their gradients while backward runs";
  if (!job.train.recompute.empty()) {
    return "blocks named in train.recompute set the random generator, which can't be recorded";
  }
  return "";
}

std::vector<std::string> describe(const JobConfig& job, const Parts& parts) {
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("{}: {}, {} parameters, on {} in {}{}", job.run.name, job.model.model.selected(),
                  format_count(count_parameters(*parts.model)), where(parts),
                  precision_name(parts.precision), parts.channels_last ? ", channels_last" : ""));
  lines.push_back(fmt::format(
      "data: {} training and {} evaluation samples of {}", format_count(parts.train_data->size()),
      format_count(parts.eval_data ? parts.eval_data->size() : 0), text_of(parts.input)));
  if (!job.model.freeze.empty()) {
    int64_t trained = 0;
    for (const at::Tensor& parameter : parts.model->parameters()) {
      if (parameter.requires_grad()) trained += parameter.numel();
    }
    lines.push_back(fmt::format("frozen: all but {} parameters", format_count(trained)));
  }
  const int64_t micro = job.batch.micro_or_all();
  lines.push_back(fmt::format("plan: {} steps of {} samples{}, {} steps an epoch",
                              format_count(parts.total_steps), *job.batch.global,
                              micro < *job.batch.global
                                  ? fmt::format(" in micro-batches of at most {}", micro)
                                  : std::string(),
                              format_count(parts.steps_per_epoch)));
  if (job.optimizer.batch_rule != BatchRule::kNone) {
    lines.push_back(fmt::format("learning rate: {:.6g}, {:.6g} × {}({} / {})",
                                peak_learning_rate(job), job.optimizer.learning_rate,
                                job.optimizer.batch_rule == BatchRule::kSqrt ? "√" : "",
                                *job.batch.global, job.optimizer.base_batch));
  }
  if (!parts.precision.note.empty()) lines.push_back("note: " + parts.precision.note);
  for (const auto& note : options_without_effect(job, parts)) lines.push_back("note: " + note);
  const std::string no_fall = no_plateau(job, parts.eval_data != nullptr);
  if (!no_fall.empty()) lines.push_back("warning: " + no_fall);
  return lines;
}

}  // namespace brim::train
