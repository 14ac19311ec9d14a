#include "framework/distributed/config.h"

#include <array>
#include <string_view>

#include "framework/base/error.h"

namespace brim::distributed {

void DistributedConfig::fields(recipe::Fields& f) {
  static constexpr std::array<std::string_view, 3> kBackends = {"auto", "nccl", "gloo"};
  static constexpr std::array<std::string_view, 3> kStrategies = {"ddp", "fsdp", "auto"};
  static constexpr std::array<std::string_view, 2> kSchedules = {"1f1b", "gpipe"};
  static constexpr std::array<std::string_view, 3> kBalances = {"even", "throughput", "cost"};
  static constexpr std::array<std::string_view, 3> kCompress = {"none", "bf16", "fp16"};
  f.choice("backend", backend, kBackends,
           "what carries tensors between ranks; auto: NCCL between GPUs, Gloo between CPUs");
  f.choice(
      "strategy", strategy, kStrategies,
      "ddp: every rank keeps the whole model; fsdp: each keeps its rows of parameters, gradients "
      "and the optimizer's state, and blocks are gathered while they compute; auto: the fastest "
      "that "
      "fits, zero, shards and stages included, as trainer plan ranks them");
  f.value("shards", shards,
          "of fsdp: ranks, neighbours in number, that share one copy of the model, as those of a "
          "machine; 0: all",
          recipe::between(0, 1 << 20));
  f.value("stages", stages,
          "parts that the model is cut into, one after the other, each on a rank of its own; ranks "
          "beyond them are replicas that see other samples",
          recipe::between(1, 1 << 16));
  f.choice("schedule", schedule, kSchedules,
           "of stages: 1f1b holds the activations of at most as many micro-batches as there are "
           "stages; gpipe those of all of a step's");
  f.value("cut", cut,
          "of stages: the parts of the model that later stages begin with, as the plan names them; "
          "empty: those that make the slowest stage fastest");
  f.value("zero", zero,
          "split the optimizer's state over the ranks (ZeRO stage 1): less memory a rank");
  f.choice("balance", balance, kBalances,
           "how a step's samples are split over the ranks: even; by the throughput that each rank "
           "shows; or even, with lengths that add up to the same on each rank");
  f.value("bucket_mib", gradients.bucket_mib, "gradients that are summed in one go, in MiB",
          recipe::between(0.001, 4096));
  f.choice("compress", gradients.compress, kCompress,
           "dtype in which gradients travel; they are kept in their own");
  f.value("unused_parameters", gradients.unused_parameters,
          "the loss may leave out parameters, not the same ones each step");
  f.value("static_graph", gradients.static_graph,
          "every step uses the same parameters in the same way");
  f.value("sync_batch_norm", sync_batch_norm,
          "batch norms use the statistics of all ranks' samples together");
  f.value(
      "check", compares,
      "compare each collective with the other ranks' before it runs, and name the first one that "
      "differs: to find why ranks hang; slow");
  f.value("timeout_s", timeout_s,
          "seconds after which a rank that does not answer ends the run with status 6",
          recipe::between(1, 86400));
}

void DistributedConfig::check() const {
  check_stages();
  if (strategy == StrategyKind::kAuto && (zero || shards != 0)) {
    throw Error(
        Exit::kRecipe,
        "[distributed] strategy = \"auto\" chooses {} too: leave it out, or name a strategy",
        zero ? "zero" : "shards");
  }
  if (strategy != StrategyKind::kFsdp) {
    if (shards == 0) return;
    throw Error(Exit::kRecipe,
                "[distributed] shards = {} needs strategy = \"fsdp\": ddp keeps the whole model on "
                "every rank",
                shards);
  }
  if (zero) {
    throw Error(
        Exit::kRecipe,
        "[distributed] zero = true and strategy = \"fsdp\" exclude each other: fsdp splits the "
        "optimizer's state already; leave zero out");
  }
  if (gradients.static_graph) {
    throw Error(Exit::kRecipe,
                "[distributed] static_graph = true is for strategy = \"ddp\": fsdp sums gradients "
                "block by block; leave it out");
  }
}

void DistributedConfig::check_stages() const {
  if (!is_pipeline()) {
    if (cut.empty()) return;
    throw Error(Exit::kRecipe,
                "[distributed] cut has {} part{} for one stage; set stages to {}, or leave it out",
                cut.size(), cut.size() == 1 ? "" : "s", cut.size() + 1);
  }
  const auto refuse = [&](bool contradicts, std::string_view what, std::string_view why) {
    if (!contradicts) return;
    throw Error(Exit::kRecipe, "[distributed] {} and stages = {} exclude each other: {}", what,
                stages, why);
  };
  refuse(strategy == StrategyKind::kFsdp, "strategy = \"fsdp\"",
         "each stage keeps its parameters whole; leave one of them out");
  refuse(strategy == StrategyKind::kAuto, "strategy = \"auto\"",
         "it chooses stages, too; leave one of them out");
  refuse(zero, "zero = true", "each stage has an optimizer of its own already; leave zero out");
  refuse(sync_batch_norm, "sync_batch_norm = true",
         "ranks would wait for each other within a stage's pass; leave it out");
  refuse(balance != Balance::kEven, "balance other than \"even\"",
         "the stages of a replica see the same samples; leave balance out");
  if (cut.empty() || static_cast<int64_t>(cut.size()) + 1 == stages) return;
  throw Error(
      Exit::kRecipe,
      "[distributed] cut: expected {} part{}, the first of each stage but stage 0, found {}",
      stages - 1, stages == 2 ? "" : "s", cut.size());
}

}  // namespace brim::distributed
