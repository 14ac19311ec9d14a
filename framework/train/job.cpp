#include "framework/train/job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "framework/base/printable.h"
#include "framework/data/order/plan.h"
#include "framework/data/sources/image_dataset.h"
#include "framework/recipe/load_library.h"
#include "framework/recipe/read.h"
#include "framework/recipe/text.h"
#include "framework/telemetry/prometheus/prometheus.h"
#include "framework/train/callbacks.h"

namespace brim::train {

using recipe::at_least;
using recipe::between;
using recipe::between_open_high;

constexpr double kMaxFloat = 1e38;  // of what is multiplied with float32

void RunConfig::fields(recipe::Fields& f) {
  f.value("name", name, "names the run's folder under runs/; empty: the model's name");
  f.value("seed", seed, "seeds initialisation, sample order, augmentation and dropout",
          at_least(0));
  f.value("deterministic", deterministic,
          "the same weights to the bit in every run on the same hardware; refuses what can't "
          "promise it");
}

void ModelSection::fields(recipe::Fields& f) {
  std::filesystem::path library = recipe::loaded_library();  // read_job() has seen to it
  f.value("library", library,
          "shared library with components of your own, loaded before their names are looked up; it "
          "is a "
          "program: name only one that you trust");
  f.component("name", model, "which model to train");
  f.value("pretrained", pretrained,
          "safetensors file of weights to start from; a last layer for other classes is "
          "re-initialised");
  f.value("strict", strict,
          "whether names and shapes in that file must all agree with the model's");
  f.value("freeze", freeze, "names of parameters, or patterns, that are not trained");
}

void BatchConfig::fields(recipe::Fields& f) {
  f.auto_or("global", global,
            "samples per optimizer step, over all ranks and micro-batches; auto: one tuned "
            "micro-batch of each rank, with optimizer.batch_rule for the learning rate",
            at_least(1));
  f.auto_or("micro", micro,
            "most samples of a forward and backward pass; the global batch is split evenly, and "
            "its gradients add up; "
            "0: the global batch in one pass; auto: the largest that memory holds",
            at_least(0));
  static constexpr std::array<std::string_view, 2> kObjectives = {"memory", "throughput"};
  f.choice("objective", objective, kObjectives,
           "of micro = \"auto\": the largest that fits, or the smallest that is as fast as any");
}

void PrecisionConfig::fields(recipe::Fields& f) {
  f.choice("mode", mode, amp::kPrecisionWords,
           "dtype of forward and backward; auto picks what the device does well");
  f.value("channels_last", channels_last, "keep image tensors in NHWC memory order");
  f.auto_or("fused", fused,
            "use operations that do the work of several in one go, such as batch norm with ReLU; "
            "results equal the others but for rounding; auto: where the first steps find them "
            "faster, shape by shape");
  f.section("scaler", scaler, "gradient scaling, used with fp16");
}

void OptimizerSection::fields(recipe::Fields& f) {
  f.component("name", optimizer, "which optimizer to use");
  f.value("learning_rate", learning_rate, "peak learning rate, before the schedule",
          between(0, kMaxFloat));
  static constexpr std::array<std::string_view, 3> kRules = {"none", "linear", "sqrt"};
  f.choice("batch_rule", batch_rule, kRules,
           "how the learning rate follows batch.global / base_batch: not at all, in proportion, or "
           "with the square root");
  f.value("base_batch", base_batch, "the global batch that learning_rate is for", at_least(1));
  f.value("weight_decay", weight_decay, "weight decay of weights; biases and norms have none",
          between(0, kMaxFloat));
  f.value("layer_decay", layer_decay,
          "what a layer's learning rate is multiplied by for each layer between it and the output; "
          "1: all learn at one rate",
          {.low = 0, .high = 1, .low_open = true});
}

void ScheduleSection::fields(recipe::Fields& f) {
  f.auto_or("steps", steps,
            "laid out for a run of at least this many steps, of which this may be the first part",
            at_least(1));
  f.component("name", schedule, "how the learning rate changes over the run");
}

void TrainConfig::fields(recipe::Fields& f) {
  f.auto_or("epochs", epochs, "passes over the training data; auto: one", between(1, 1 << 30));
  f.auto_or("steps", steps, "optimizer steps to run instead of whole epochs", at_least(1));
  f.component("task", task, "what is learned");
  f.value("clip_norm", clip_norm, "largest global L2 norm of the gradients; 0: no clipping",
          between(0, kMaxFloat));
  f.value("label_smoothing", label_smoothing, "share of the target spread over all classes",
          between_open_high(0, 1));
  f.value("ema", ema,
          "decay of a moving average of the weights, evaluated and saved; it begins with the "
          "initial weights, without a warm-up; 0: none",
          between_open_high(0, 1));
  static constexpr std::array<std::string_view, 2> kOnNan = {"fail", "skip"};
  f.choice("on_nan", on_nan, kOnNan,
           "fail: stop with status 7 at a loss that is not finite, keeping the last good "
           "checkpoint; skip: leave out steps whose gradients are not finite");
  f.value("recompute", recompute,
          "blocks of the model, as in \"layer1.*\", whose activations backward computes again "
          "rather than keep them");
  f.value("cuda_graph", cuda_graph,
          "on a GPU: forward and backward of a micro-batch are recorded after a few steps and then "
          "launched as a whole, which small batches gain by; several ranks sum their gradients "
          "after backward then, not beside it");
}

void EvalConfig::fields(recipe::Fields& f) {
  f.value("enabled", enabled, "false: no evaluation at all, not even at the end");
  f.value("every_epochs", every_epochs, "epochs between evaluations; 0: only at the end",
          at_least(0));
  f.auto_or("batch", batch, "samples per evaluation batch; auto: the training micro-batch",
            at_least(1));
}

void CheckpointConfig::fields(recipe::Fields& f) {
  f.value("enabled", enabled, "false: nothing is saved, not even at the end");
  f.value("every_steps", every_steps, "steps between checkpoints; 0: not by steps", at_least(0));
  f.value("every_minutes", every_minutes, "minutes between checkpoints; 0: not by time",
          at_least(0));
  f.value("keep", keep, "newest checkpoints kept, besides the best; 0: all", at_least(0));
}

void TelemetryConfig::fields(recipe::Fields& f) {
  f.value("tensorboard", tensorboard, "write a TensorBoard event file");
  f.value("every_steps", every_steps,
          "steps between lines of metrics.jsonl; the last one of all has one, too", at_least(1));
  f.value("histograms_every_steps", histograms_every_steps,
          "steps between histograms of each parameter's gradients in the event file; 0: none",
          at_least(0));
  f.value("prometheus", prometheus,
          "where Prometheus finds the newest metrics: \"127.0.0.1:9400\" or \":9400\" (from this "
          "machine alone), \"0.0.0.0:9400\", \"file:/PATH.prom\"; empty: nowhere");
  f.value("exec", exec,
          "program and arguments that get each line of metrics.jsonl on standard input, once, from "
          "rank 0; empty: none");
}

void JobConfig::fields(recipe::Fields& f) {
  f.section("run", run, "the run as a whole");
  f.section("model", model, "the model and its own keys");
  f.section("data", data, "the dataset, its own keys, and how it is loaded");
  f.section("batch", batch, "samples per step");
  f.section("precision", precision, "mixed precision");
  f.section("optimizer", optimizer, "the optimizer and its own keys");
  f.section("schedule", schedule, "the learning-rate schedule and its own keys");
  f.section("train", train, "length and regularisation of the training");
  f.section("eval", eval, "evaluation on held-out data");
  f.section("checkpoint", checkpoint, "when to save");
  f.section("device", device, "the device to train on");
  f.section("distributed", distributed, "how several ranks train together");
  f.section("telemetry", telemetry, "what is recorded while training");
}

double peak_learning_rate(const JobConfig& job) {
  const OptimizerSection& section = job.optimizer;
  const double times =
      static_cast<double>(*job.batch.global) / static_cast<double>(section.base_batch);
  switch (section.batch_rule) {
    case BatchRule::kNone:
      return section.learning_rate;
    case BatchRule::kLinear:
      return section.learning_rate * times;
    case BatchRule::kSqrt:
      return section.learning_rate * std::sqrt(times);
  }
  return section.learning_rate;
}

optim::RunLength run_length(const JobConfig& job, int64_t samples) {
  const int64_t steps_per_epoch =
      data::steps_per_epoch(samples, *job.batch.global, job.data.drop_last);
  if (steps_per_epoch == 0) {
    throw Error(Exit::kRecipe,
                "[data] drop_last = true leaves no step: {} training samples, [batch] global = {}",
                samples, *job.batch.global);
  }
  return {.steps = job.train.steps.value_or(job.train.epochs.value_or(1) * steps_per_epoch),
          .steps_per_epoch = steps_per_epoch};
}

std::unique_ptr<optim::Schedule> build_schedule(const JobConfig& job, const optim::RunLength& run) {
  return job.schedule.schedule->build(peak_learning_rate(job),
                                      {.steps = std::max(run.steps, job.schedule.steps.value_or(0)),
                                       .steps_per_epoch = run.steps_per_epoch});
}

std::string no_plateau(const JobConfig& job, bool has_eval_data) {
  if (job.schedule.schedule.selected() != "plateau") return "";
  std::string why;
  if (!job.eval.enabled) {
    why = "eval.enabled is false";
  } else if (job.eval.every_epochs == 0) {
    why = "eval.every_epochs = 0 evaluates only at the end";
  } else if (!has_eval_data) {
    why = "there is no evaluation set";
  }
  return why.empty() ? why
                     : "schedule.name = \"plateau\" never lowers the learning rate: it waits for "
                       "evaluations, and " +
                           why;
}

namespace {

size_t count_parts() {
  return recipe::registry<nn::ModelConfig>().names().size() +
         recipe::registry<data::SourceConfig>().names().size() +
         recipe::registry<data::SamplerConfig>().names().size() +
         recipe::registry<TaskConfig>().names().size() +
         recipe::registry<optim::OptimizerConfig>().names().size() +
         recipe::registry<optim::ScheduleConfig>().names().size() + callbacks().size();
}

void load_own_components(const recipe::Value& document) {
  recipe::require_trust(document, "model", "torchscript");
  const size_t before = count_parts();
  if (!recipe::load_library(document, "model", "library") || count_parts() > before) return;
  throw Error(
      Exit::kRecipe,
      "[model] library: expected a library that registers a component or callbacks, found one that "
      "adds none; one that was compiled with -fvisibility=hidden puts them where no one looks");
}

/// `torchscript = "model.pt"` names its model, unless the same or a higher layer names another one.
recipe::Value with_model_name(recipe::Value document) {
  auto* root = std::get_if<recipe::Table>(&document.data);
  if (root == nullptr || !root->entries.contains("model")) return document;
  auto* model = std::get_if<recipe::Table>(&root->entries.find("model")->second.data);
  if (model == nullptr || !model->entries.contains("torchscript")) return document;
  recipe::Value name = model->entries.find("torchscript")->second;
  name.data = std::string("torchscript");
  const auto given = model->entries.find("name");
  if (given == model->entries.end() || given->second.layer < name.layer) {
    model->entries.insert_or_assign("name", std::move(name));
  }
  return document;
}

void check_batch(const JobConfig& job) {
  if (!job.batch.global) {
    if (!job.batch.micro) return;
    throw Error(Exit::kRecipe,
                "[batch] global = \"auto\" is made of tuned micro-batches: expected micro = "
                "\"auto\" too, found {}",
                *job.batch.micro);
  }
  const int64_t global = *job.batch.global;
  if (job.batch.micro_or_all() > global) {
    throw Error(Exit::kRecipe, "[batch] micro = {} is more than global = {}; expected at most that",
                *job.batch.micro, global);
  }
  if (job.data.augment.mix.mixes() && (global % 2 != 0 || job.batch.micro_or_all() < 2)) {
    throw Error(
        Exit::kRecipe,
        "[data.augment] mixup and cutmix mix pairs of samples: expected [batch] global to be "
        "even and micro to be at least 2, found {} and {}",
        global, job.batch.micro_or_all());
  }
}

/// What a pipeline's stages can't do.
void check_stages(const JobConfig& job) {
  if (!job.distributed.is_pipeline()) return;
  const int64_t stages = job.distributed.stages;
  if (job.train.cuda_graph) {
    throw Error(Exit::kRecipe,
                "[train] cuda_graph = true and [distributed] stages = {} exclude each other: "
                "messages between stages are not recorded; leave one of them out",
                stages);
  }
  if (!job.batch.micro && job.distributed.schedule == distributed::ScheduleKind::kGpipe) {
    throw Error(
        Exit::kRecipe,
        "[batch] micro = \"auto\" and [distributed] schedule = \"gpipe\" exclude each other: "
        "it holds the activations of all of a step's micro-batches, whatever their size. Use "
        "\"1f1b\", or give micro as a number");
  }
}

/// It names a folder, and reaches terminals.
void check_run_name(const std::string& name) {
  constexpr size_t kMaxBytes = 200;  // file systems take 255, and "-12" may follow
  if (name.size() > kMaxBytes) {
    throw Error(Exit::kRecipe, "[run] name: expected at most {} bytes, found {}", kMaxBytes,
                name.size());
  }
  if (printable(name) != name || name.find('/') != std::string::npos || name.starts_with('.')) {
    throw Error(Exit::kRecipe,
                "[run] name = {}: expected a plain folder name without '/', control characters or "
                "a leading dot",
                recipe::toml_string(name));
  }
}

}  // namespace

JobConfig read_job(const recipe::Value& document) {
  load_own_components(document);
  if (std::ranges::count(callbacks(), nullptr) > 0) {
    throw Error(
        Exit::kRecipe,
        "callbacks(): expected an object in each entry, found a null pointer; leave it out");
  }
  JobConfig job;
  recipe::read(with_model_name(document), job);
  job.data.check();
  if (job.run.name.empty()) job.run.name = job.model.model.selected();
  check_run_name(job.run.name);
  const data::ImageOptions* const images = job.data.source->image_options();
  if (job.run.deterministic && images != nullptr && images->on_gpu) {
    throw Error(Exit::kRecipe,
                "[run] deterministic = true can't hold with [data] decode = \"gpu\", which leaves "
                "images to the CPU where GPU memory falls short; use \"cpu\"");
  }
  if (job.run.deterministic && job.distributed.balance == distributed::Balance::kThroughput) {
    throw Error(Exit::kRecipe,
                "[run] deterministic = true can't hold with [distributed] balance = "
                "\"throughput\", whose shares follow measured times; use \"even\" or \"cost\"");
  }
  job.distributed.check();
  if (job.distributed.strategy == distributed::StrategyKind::kFsdp &&
      !job.optimizer.optimizer->is_element_wise()) {
    throw Error(Exit::kRecipe,
                "[distributed] strategy = \"fsdp\" needs an optimizer that updates each element on "
                "its own: expected sgd, adam or adamw, found {}",
                job.optimizer.optimizer.selected());
  }
  check_stages(job);
  const auto& gradients = job.distributed.gradients;
  if (!job.train.recompute.empty() && gradients.unused_parameters && !gradients.static_graph) {
    throw Error(Exit::kRecipe,
                "[train] recompute hides a block's parameters from [distributed] "
                "unused_parameters = true; set static_graph = true too, or leave one out");
  }
  check_batch(job);
  (void)telemetry::read_prometheus_target(job.telemetry.prometheus);
  if (!job.telemetry.exec.empty() && job.telemetry.exec.front().empty()) {
    throw Error(Exit::kRecipe,
                "[telemetry] exec: expected a program and its arguments, found an empty name");
  }
  return job;
}

}  // namespace brim::train
