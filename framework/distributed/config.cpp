#include "framework/distributed/config.h"

#include <array>
#include <string_view>

#include "framework/base/error.h"

namespace brim::distributed {

void DistributedConfig::fields(recipe::Fields& f) {
  static constexpr std::array<std::string_view, 3> kBackends = {"auto", "nccl", "gloo"};
  static constexpr std::array<std::string_view, 2> kStrategies = {"ddp", "fsdp"};
  static constexpr std::array<std::string_view, 3> kBalances = {"even", "throughput", "cost"};
  static constexpr std::array<std::string_view, 3> kCompress = {"none", "bf16", "fp16"};
  f.choice("backend", backend, kBackends,
           "what carries tensors between ranks; auto: NCCL between GPUs, Gloo between CPUs");
  f.choice(
      "strategy", strategy, kStrategies,
      "ddp: every rank keeps the whole model; fsdp: each keeps its rows of parameters, gradients "
      "and the optimizer's state, and blocks are gathered while they compute");
  f.value("shards", shards,
          "of fsdp: ranks, neighbours in number, that share one copy of the model, as those of a "
          "machine; 0: all",
          recipe::between(0, 1 << 20));
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
  f.value("timeout_s", timeout_s,
          "seconds after which a rank that does not answer ends the run with status 6",
          recipe::between(1, 86400));
}

void DistributedConfig::check() const {
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

}  // namespace brim::distributed
