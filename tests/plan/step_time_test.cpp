#include "framework/plan/step_time.h"

#include <gtest/gtest.h>

namespace brim::plan {
namespace {

/// 1 GB/s between 4 ranks of one machine, without latency.
Network network(double hidden_share) {
  const Link link{.bytes_per_s = 1e9, .hop_s = 0};
  return {.all_reduce = link,
          .gather = link,
          .scatter = link,
          .machines = link,
          .ranks_of_machine = 4,
          .hidden_share = hidden_share};
}

constexpr Work kWork{.pass_s = 1, .sample_s = 0.5, .recompute_share = 0.25, .update_s = 0.4};
constexpr ModelBytes kModel{.parameters = 800'000'000,
                            .gradients = 800'000'000,
                            .bucket = 200'000'000,
                            .units = 4,
                            .gathered = 400'000'000,
                            .scattered = 400'000'000};

TEST(StepTime, OfOneRankIsItsOwnWork) {
  const StepTime time = step_time({}, 1, {.micro = 3, .share = 8}, kWork, kModel, network(0));
  EXPECT_DOUBLE_EQ(time.compute_s, 3 * 1 + 8 * 0.5);
  EXPECT_DOUBLE_EQ(time.update_s, 0.4);
  EXPECT_DOUBLE_EQ(time.exposed_s, 0);
  const StepTime again =
      step_time({}, 1, {.micro = 8, .share = 8, .recomputes = true}, kWork, kModel, network(0));
  EXPECT_DOUBLE_EQ(again.compute_s, 1.25 * (1 + 8 * 0.5));
}

TEST(StepTime, APassTakesNoLessThanItsLaunches) {
  Work work = kWork;
  work.launch_s = 100;
  const StepTime time = step_time({}, 1, {.micro = 4, .share = 8}, work, kModel, network(0));
  EXPECT_DOUBLE_EQ(time.compute_s, 200);
}

TEST(StepTime, DdpHidesItsSumBehindBackwardButForTheLastBucket) {
  const Batch batch{.micro = 1, .share = 1};  // a pass of 1.5 s
  const double sum_s = 2 * 0.75 * 0.8;
  EXPECT_DOUBLE_EQ(step_time({}, 4, batch, kWork, kModel, network(0)).exposed_s, sum_s);
  EXPECT_DOUBLE_EQ(step_time({}, 4, batch, kWork, kModel, network(0.5)).exposed_s, sum_s - 0.75);
  EXPECT_DOUBLE_EQ(
      step_time({}, 4, {.micro = 8, .share = 8}, kWork, kModel, network(0.5)).exposed_s, sum_s / 4);
}

TEST(StepTime, Zero1SplitsTheUpdateAndGathersItsResult) {
  const Batch batch{.micro = 1, .share = 1};
  const StepTime ddp = step_time({}, 4, batch, kWork, kModel, network(0));
  const StepTime zero1 =
      step_time({.sharing = Sharing::kZero1}, 4, batch, kWork, kModel, network(0));
  EXPECT_DOUBLE_EQ(zero1.update_s, ddp.update_s / 4);
  EXPECT_DOUBLE_EQ(zero1.exposed_s, ddp.exposed_s + 0.75 * 0.8);
}

TEST(StepTime, FsdpGathersTwiceAndScattersInEachMicroBatch) {
  const Strategy fsdp{.sharing = Sharing::kFsdp};
  const double third_s = 0.75 * 0.4;
  const auto exposed = [&](int64_t micro, const Strategy& strategy) {
    return step_time(strategy, 4, {.micro = micro, .share = 8}, kWork, kModel, network(0))
        .exposed_s;
  };
  EXPECT_DOUBLE_EQ(exposed(8, fsdp), 3 * third_s);
  EXPECT_DOUBLE_EQ(exposed(2, fsdp), 4 * 3 * third_s);
  // Two pairs: half travels within each, and a sum of half the gradients crosses them.
  EXPECT_DOUBLE_EQ(exposed(8, {.sharing = Sharing::kFsdp, .shards = 2}),
                   3 * 0.5 * 0.4 + 2 * 0.5 * 0.2);
}

TEST(StepTime, StagesIdleWhileTheFirstAndTheLastMicroBatchPass) {
  const Strategy halves{.sharing = Sharing::kStages, .stages = 2};
  const Batch batch{.micro = 2, .share = 8};  // 4 micro-batches of 1 + 2 × 0.5 s
  const Cut cut{.slowest_share = 0.6, .message_bytes = 100'000'000};
  const auto time = [&](int64_t ranks, double hidden_share) {
    return step_time(halves, ranks, batch, kWork, kModel, network(hidden_share), cut);
  };
  EXPECT_DOUBLE_EQ(time(2, 0.5).compute_s, 4 * 0.6 * 2);
  EXPECT_DOUBLE_EQ(time(2, 0.5).exposed_s, 0.6 * 2 + 2 * 0.1);
  EXPECT_DOUBLE_EQ(time(2, 0).exposed_s, 0.6 * 2 + 2 * 0.1 + 3 * 2 * 0.1);
  EXPECT_DOUBLE_EQ(time(2, 0).update_s, 0.2);
  // Two pipelines: half of the gradients is summed while the last micro-batch goes backward.
  EXPECT_NEAR(time(4, 0.5).exposed_s - time(2, 0.5).exposed_s, 2 * 0.5 * 0.4 / 2, 1e-12);
}

TEST(StepTime, AStageThatWaitsLeavesItsCoreToTheOthers) {
  const auto idle_s = [](double ranks_per_core) {
    Work work = kWork;
    work.ranks_per_core = ranks_per_core;
    return step_time({.sharing = Sharing::kStages, .stages = 2}, 2, {.micro = 2, .share = 8}, work,
                     kModel, network(0.5), {.slowest_share = 0.6})
        .exposed_s;
  };
  EXPECT_DOUBLE_EQ(idle_s(1), 1.2);
  EXPECT_NEAR(idle_s(1.1), 1.2 * (5 / 1.1 - 4), 1e-12);
  EXPECT_DOUBLE_EQ(idle_s(2), 0);
}

TEST(StepTime, RingsBetweenMachinesCarryAPartOfTheBytes) {
  Network two = network(0);
  two.machines = {.bytes_per_s = 1e8, .hop_s = 0.01};
  EXPECT_DOUBLE_EQ(two.all_reduce_s(8, 8e8), 2 * (0.75 * 0.8 + 0.5 * 8e8 / 4 / 1e8 + 0.01));
  EXPECT_DOUBLE_EQ(two.all_reduce_s(1, 8e8), 0);
}

}  // namespace
}  // namespace brim::plan
