// Each rule at three severities, just before the first of them, and without what it needs.
#include "framework/doctor/rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/doctor/healthy.h"

namespace brim::doctor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using FactsChange = std::function<void(RunFacts&, double)>;

struct RunCase {
  std::string name;
  RuleResult (*check)(const RunFacts&);
  FactsChange change;
  double near_miss, hint, warning, severe;
  std::string message;  // part of it, at severe
  std::string advice;
  std::function<void(RunFacts&)> forget;  // what the rule needs
};

void PrintTo(const RunCase& c, std::ostream* out) { *out << c.name; }

/// Compute in fp32 or in NCHW order takes this share.
FactsChange compute_with(const std::function<void(RunFacts&)>& set) {
  return [set](RunFacts& facts, double share) {
    set(facts);
    give(facts, Phase::kEvaluation, 1 - share / 0.93);
  };
}

std::vector<RunCase> run_cases() {
  return {
      {"loader_bound", check_loader,
       [](RunFacts& f, double share) {
         give(f, Phase::kDataWait, share);
         f.wanted_per_s = 1540;
         f.given_per_s = 1540 * (1 - share);
       },
       0.049, 0.06, 0.2, 0.6, "the loader delivers 616 samples/s, the device could take 1,540",
       "data.workers = 10 (6 more) or data.cache = \"decoded\" or data.fast_decode = true",
       [](RunFacts& f) { f.phases.reset(); }},
      {"slow_disk", check_slow_disk,
       [](RunFacts& f, double percent) {
         give(f, Phase::kDataWait, 0.04);
         f.io_stalled_percent = percent;
       },
       9.9, 12, 30, 60, "60 % of the time", "data.cache = \"encoded\"",
       [](RunFacts& f) { f.io_stalled_percent.reset(); }},
      {"communication", check_communication,
       [](RunFacts& f, double share) { give(f, Phase::kCommunication, share); }, 0.099, 0.11, 0.25,
       0.5, "exposed communication: 50 % of step time", "distributed.compress = \"bf16\"",
       [](RunFacts& f) { f.phases.reset(); }},
      {"straggler", check_straggler,
       [](RunFacts& f, double ratio) { f.slowest_rank_ratio = ratio; }, 1.09, 1.12, 1.3, 1.6,
       "rank 2 takes 1.60 times", "distributed.balance = \"throughput\"",
       [](RunFacts& f) { f.slowest_rank_ratio.reset(); }},
      {"uneven_shards", check_uneven_shards,
       [](RunFacts& f, double ratio) { f.largest_share_ratio = ratio; }, 1.04, 1.06, 1.2, 1.4,
       "1.40 times the mean", "batch.global", [](RunFacts& f) { f.largest_share_ratio.reset(); }},
      {"precision", check_precision, compute_with([](RunFacts& f) { f.precision = "fp32"; }), 0.29,
       0.35, 0.6, 0.8, "80 % of step time is compute in fp32", "precision.mode = \"bf16\"",
       [](RunFacts& f) { f.precision.clear(); }},
      {"layout", check_layout, compute_with([](RunFacts& f) { f.is_channels_last = false; }), 0.29,
       0.35, 0.6, 0.8, "NCHW", "precision.channels_last = true",
       [](RunFacts& f) { f.is_channels_last.reset(); }},
      {"launch_bound", check_launch_bound,
       [](RunFacts& f, double busy) {
         f.step_s = Spread{0.005, 0.004, 0.005, 0.006};
         f.busy_percent->mean = busy;
       },
       71, 65, 40, 20, "busy 20 % of steps of 5.0 ms", "batch.micro = 128",
       [](RunFacts& f) { f.busy_percent.reset(); }},
      {"host_syncs", check_host_syncs, [](RunFacts& f, double syncs) { f.host_syncs = syncs; }, 0.4,
       1, 3, 20, "20.0 host-device synchronisations per step", ".item()",
       [](RunFacts& f) { f.host_syncs.reset(); }},
      {"swing", check_swing,
       [](RunFacts& f, double swing) {
         f.busy_percent->p95 = 99;
         f.busy_percent->p5 = 99 - swing;
       },
       39, 45, 70, 97, "varies between 2 % and 99 %", "data.prefetch",
       [](RunFacts& f) { f.busy_percent.reset(); }},
      {"full_memory", check_full_memory,
       [](RunFacts& f, double busy) {
         f.peak_bytes = 78e9;
         f.busy_percent->mean = busy;
       },
       61, 55, 40, 25, "98 % full but the device is busy only 25 %", "precision.mode",
       [](RunFacts& f) { f.cap_bytes.reset(); }},
      {"empty_memory", check_empty_memory,
       [](RunFacts& f, double fill) { f.peak_bytes = fill * 80e9; }, 0.51, 0.4, 0.25, 0.1,
       "only 7.5 GiB of 74.5 GiB", "batch.micro = 256", [](RunFacts& f) { f.peak_bytes.reset(); }},
      {"throttling", check_throttling, [](RunFacts& f, double share) { f.slowed_share = share; },
       0.019, 0.03, 0.2, 0.5, "50 % of the time", "power limit",
       [](RunFacts& f) { f.slowed_share.reset(); }},
      {"swap", check_swap, [](RunFacts& f, double bytes) { f.swapped_bytes = bytes; }, 63e6, 70e6,
       600e6, 4e9, "3.7 GiB swapped out", "data.prefetch",
       [](RunFacts& f) { f.swapped_bytes.reset(); }},
      {"page_faults", check_swap, [](RunFacts& f, double rate) { f.major_faults_per_s = rate; }, 19,
       25, 200, 900, "900 major page faults per second", "data.prefetch",
       [](RunFacts& f) { f.major_faults_per_s.reset(); }},
      {"oversubscription", check_oversubscription,
       [](RunFacts& f, double load) { f.load_per_core = load; }, 1.4, 1.6, 3, 5,
       "load 5.0 per core", "OMP_NUM_THREADS", [](RunFacts& f) { f.load_per_core.reset(); }},
      {"small_batch", check_small_batch,
       [](RunFacts& f, double samples) {
         f.is_cuda = false;
         f.step_s = Spread{0.005, 0.004, 0.005, 0.006};
         f.micro_batch = static_cast<int64_t>(samples);
         f.global_batch = 4 * *f.micro_batch;  // of 4 ranks
       },
       17, 12, 4, 1, "passes of 1 sample in steps of 5.0 ms", "a larger batch.global, such as 256",
       [](RunFacts& f) { f.micro_batch.reset(); }},
      {"bookkeeping", check_bookkeeping,
       [](RunFacts& f, double share) {
         give(f, Phase::kOther, share);
         f.metrics_every = 1;
       },
       0.049, 0.06, 0.2, 0.5, "50 % of step time passes between the phases",
       "telemetry.every_steps = 10", [](RunFacts& f) { f.metrics_every.reset(); }},
  };
}

class RuleTest : public ::testing::TestWithParam<RunCase> {
 protected:
  static RuleResult outcome(double value) {
    RunFacts facts = healthy();
    GetParam().change(facts, value);
    return GetParam().check(facts);
  }
  static void expect(double value, Severity severity) {
    const RuleResult seen = outcome(value);
    ASSERT_TRUE(seen.finding) << value << ": silent " << seen.missing;
    EXPECT_EQ(severity_name(seen.finding->severity), severity_name(severity)) << value;
  }
};

TEST_P(RuleTest, IsSilentForAHealthyRunAndJustBeforeItsFirstThreshold) {
  const RuleResult well = GetParam().check(healthy());
  EXPECT_FALSE(well.finding) << well.finding->message;
  EXPECT_EQ(well.missing, "");
  const RuleResult near = outcome(GetParam().near_miss);
  EXPECT_FALSE(near.finding) << near.finding->message;
}

TEST_P(RuleTest, SpeaksLouderTheWorseItIs) {
  expect(GetParam().hint, Severity::kHint);
  expect(GetParam().warning, Severity::kWarning);
  expect(GetParam().severe, Severity::kSevere);
}

TEST_P(RuleTest, SaysWhatIsWrongAndWhatToChange) {
  const RuleResult seen = outcome(GetParam().severe);
  ASSERT_TRUE(seen.finding);
  EXPECT_THAT(seen.finding->message, HasSubstr(GetParam().message));
  EXPECT_THAT(seen.finding->change, HasSubstr(GetParam().advice));
}

TEST_P(RuleTest, SaysWhatIsNotRecorded) {
  RunFacts facts = healthy();
  GetParam().change(facts, GetParam().severe);
  GetParam().forget(facts);
  const RuleResult seen = GetParam().check(facts);
  EXPECT_FALSE(seen.finding);
  EXPECT_NE(seen.missing, "");
}

INSTANTIATE_TEST_SUITE_P(Rules, RuleTest, ::testing::ValuesIn(run_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Rules, AllAreTested) {
  for (const Rule& rule : all_rules()) {
    const auto all = run_cases();
    EXPECT_TRUE(std::ranges::any_of(all, [&](const RunCase& c) { return c.check == rule.check; }))
        << rule.name;
  }
}

TEST(Rules, WhatOnlyAGpuHasIsNoMatterOnTheCpu) {
  RunFacts facts = healthy();
  facts.is_cuda = false;
  facts.busy_percent.reset();
  facts.peak_bytes = 1e6;
  facts.slowed_share.reset();
  for (const auto check : {check_launch_bound, check_host_syncs, check_swing, check_full_memory,
                           check_empty_memory, check_throttling}) {
    EXPECT_FALSE(check(facts).finding);
    EXPECT_EQ(check(facts).missing, "");
  }
}

std::string advice_on_memory(int64_t micro, int64_t global, double fill) {
  RunFacts facts = healthy();
  facts.micro_batch = micro;
  facts.global_batch = global;
  facts.peak_bytes = fill * *facts.cap_bytes;
  return check_empty_memory(facts).finding->change;
}

TEST(EmptyMemory, ProposesNoBatchThatIsNotLarger) {
  EXPECT_THAT(advice_on_memory(2, 2, 0.4), HasSubstr("batch.global = 4 "));
  EXPECT_THAT(advice_on_memory(8, 8, 0.4), HasSubstr("batch.global = 16 "));
  EXPECT_THAT(advice_on_memory(9, 64, 0.4), HasSubstr("batch.micro = 16"));
  EXPECT_THAT(advice_on_memory(1, 1, 0.5), HasSubstr("leave the rest of the GPU"));
  EXPECT_THAT(advice_on_memory(1, 1, 0.5), ::testing::Not(HasSubstr("batch.")));
}

std::vector<Settings> proposals_of(RuleResult (*check)(const RunFacts&), const RunFacts& facts) {
  const RuleResult seen = check(facts);
  return seen.finding ? seen.finding->proposals : std::vector<Settings>{};
}

TEST(Proposals, OfASlowLoaderAreWhatTheRunDoesNotHaveYet) {
  RunFacts facts = healthy();
  give(facts, Phase::kDataWait, 0.5);
  facts.given_per_s = 100;
  facts.wanted_per_s = 200;
  facts.prefetch = 0;
  EXPECT_THAT(proposals_of(check_loader, facts),
              ElementsAre(Settings{"data.prefetch=2"}, Settings{"data.workers=8"},
                          Settings{"data.cache=decoded"}, Settings{"data.fast_decode=true"}));
  facts.prefetch = 4;
  facts.workers = facts.cores;
  facts.cache = "decoded";
  EXPECT_THAT(proposals_of(check_loader, facts), IsEmpty());
  facts.cache = "";  // of tokens
  facts.fast_decode.reset();
  facts.workers = 0;
  EXPECT_THAT(proposals_of(check_loader, facts), ElementsAre(Settings{"data.workers=2"}));
}

TEST(Proposals, OfASlowLoaderHaveTheGpuDecodeWhereThereIsOne) {
  RunFacts facts = healthy();
  give(facts, Phase::kDataWait, 0.5);
  facts.given_per_s = 100;
  facts.wanted_per_s = 200;
  facts.workers = facts.cores;
  facts.decode = "cpu";
  EXPECT_THAT(proposals_of(check_loader, facts),
              ElementsAre(Settings{"data.decode=gpu"}, Settings{"data.cache=decoded"},
                          Settings{"data.fast_decode=true"}));
  facts.is_cuda = false;
  EXPECT_THAT(proposals_of(check_loader, facts), Not(Contains(Settings{"data.decode=gpu"})));
  facts.is_cuda = true;
  facts.decode = "gpu";  // which neither goes with
  EXPECT_THAT(proposals_of(check_loader, facts), IsEmpty());
  EXPECT_THAT(check_loader(facts).finding->change, HasSubstr("trainer data bench"));
}

TEST(Proposals, OfALargerBatchTakeTheLearningRateAlong) {
  RunFacts facts = healthy();
  facts.is_cuda = false;
  facts.ranks = 1;
  facts.step_s = Spread{0.005, 0.004, 0.005, 0.006};
  facts.micro_batch = facts.global_batch = 4;
  EXPECT_THAT(proposals_of(check_small_batch, facts),
              ElementsAre(Settings{"batch.global=64", "batch.micro=0",
                                   "optimizer.batch_rule=linear", "optimizer.base_batch=4"}));
  facts.optimizer = "adamw";
  EXPECT_EQ(proposals_of(check_small_batch, facts)[0][2], "optimizer.batch_rule=sqrt");
  facts.batch_rule = "linear";  // as the recipe has it
  EXPECT_EQ(proposals_of(check_small_batch, facts)[0].size(), 2U);
  facts.global_batch = 64;  // in pieces of 4
  EXPECT_THAT(proposals_of(check_small_batch, facts), ElementsAre(Settings{"batch.micro=0"}));
  facts.step_s = Spread{0.5, 0.4, 0.5, 0.6};
  EXPECT_THAT(proposals_of(check_small_batch, facts), IsEmpty());
}

TEST(Proposals, OfUnevenShardsAreTheNextBatchThatRanksDivide) {
  RunFacts facts = healthy();
  facts.largest_share_ratio = 1.2;
  facts.global_batch = 13;
  EXPECT_THAT(proposals_of(check_uneven_shards, facts), ElementsAre(Settings{"batch.global=16"}));
  facts.global_batch = 16;  // the data is uneven
  EXPECT_THAT(proposals_of(check_uneven_shards, facts), IsEmpty());
}

TEST(Proposals, OfBookkeepingLeaveRareLinesAlone) {
  RunFacts facts = healthy();
  give(facts, Phase::kOther, 0.2);
  EXPECT_THAT(proposals_of(check_bookkeeping, facts), IsEmpty());
  facts.histograms_every = 1;
  EXPECT_THAT(proposals_of(check_bookkeeping, facts),
              ElementsAre(Settings{"telemetry.histograms_every_steps=1000"}));
}

TEST(Proposals, DoNotNameWhatARunHas) {
  RunFacts facts = healthy();
  facts.load_per_core = 5;
  EXPECT_THAT(proposals_of(check_oversubscription, facts), IsEmpty());
  facts.workers_are_auto = false;
  EXPECT_THAT(proposals_of(check_oversubscription, facts),
              ElementsAre(Settings{"data.workers=auto"}));
}

TEST(Communication, WaitsForASlowerRankAreNone) {
  RunFacts facts = healthy();
  give(facts, Phase::kCommunication, 0.5);
  const double own =
      facts.share(Phase::kDataWait) + facts.share(Phase::kForward) + facts.share(Phase::kBackward);
  facts.slowest_to_rank_0 = 1 + 0.3 / own;
  const RuleResult some = check_communication(facts);
  ASSERT_TRUE(some.finding);
  EXPECT_NEAR(some.finding->value, 0.2, 1e-9);
  facts.slowest_to_rank_0 = 1 + 0.45 / own;
  EXPECT_FALSE(check_communication(facts).finding);
}

TEST(Rules, AdviceOfOneVerdictDoesNotContradictItself) {
  RunFacts facts = healthy();
  give(facts, Phase::kDataWait, 0.5);
  facts.given_per_s = 100;
  facts.wanted_per_s = 200;
  facts.load_per_core = 3;  // more threads are no help, as the other rule says
  facts.workers_are_auto = false;
  EXPECT_THAT(check_oversubscription(facts).finding->change, HasSubstr("data.workers = \"auto\""));
  EXPECT_THAT(check_loader(facts).finding->change, ::testing::Not(HasSubstr("data.workers")));

  facts = healthy();
  facts.slowest_rank_ratio = 2;
  facts.is_deterministic = true;  // refuses shares that follow times
  EXPECT_THAT(check_straggler(facts).finding->change, ::testing::Not(HasSubstr("balance")));
  facts.is_deterministic = false;
  facts.largest_share_ratio = 2;
  EXPECT_THAT(check_straggler(facts).finding->change, ::testing::Not(HasSubstr("throughput")));
  facts.stages = 2;
  EXPECT_THAT(check_straggler(facts).finding->change, ::testing::Not(HasSubstr("distributed.cut")));
  facts.has_given_cut = true;
  EXPECT_THAT(check_straggler(facts).finding->change, HasSubstr("leave out distributed.cut"));
  facts.balance = "cost";
  EXPECT_THAT(check_uneven_shards(facts).finding->change, ::testing::Not(HasSubstr("cost")));

  facts = healthy();
  facts.is_cuda = true;
  facts.busy_percent->mean = 20;
  facts.step_s->p50 = 0.01;
  facts.micro_batch = 8;
  facts.global_batch = 64;
  facts.cap_bytes = 100e9;
  facts.peak_bytes = 50e9;
  EXPECT_THAT(check_launch_bound(facts).finding->change, HasSubstr("batch.micro = 16"));
  facts.peak_bytes = 95e9;  // a larger micro-batch would not fit, a smaller one would be slower
  EXPECT_THAT(check_launch_bound(facts).finding->change, ::testing::Not(HasSubstr("batch.")));
  EXPECT_THAT(check_launch_bound(facts).finding->change, Not(HasSubstr("cuda_graph")));
  facts.has_passes_alone = true;  // healthy() has four ranks
  EXPECT_EQ(check_launch_bound(facts).finding->change, "train.cuda_graph = true");
  EXPECT_THAT(check_full_memory(facts).finding->change, ::testing::Not(HasSubstr("batch.")));
}

TEST(Rules, DecodingThatTakesTheStepsCoresAsksForLessOfIt) {
  RunFacts facts = healthy();
  facts.is_cuda = false;
  give(facts, Phase::kDataWait, 0.2);
  facts.decode_share = facts.decode_load = 0.36;
  facts.given_per_s = 44;
  facts.wanted_per_s = 100;
  const RuleResult seen = check_loader(facts);
  ASSERT_TRUE(seen.finding);
  EXPECT_EQ(seen.finding->severity, Severity::kSevere);
  EXPECT_THAT(seen.finding->message, HasSubstr("data-bound: 56 % of step time (20 % waits, 36 % "
                                               "decoding on the step's own cores)"));
  EXPECT_EQ(seen.finding->change, "data.cache = \"decoded\" or data.fast_decode = true");
}

TEST(Rules, AdviceFollowsTheRecipe) {
  RunFacts facts = healthy();
  facts.swapped_bytes = 4e9;
  facts.is_cuda = false;  // there the tensors are in the memory that is swapped
  EXPECT_THAT(check_swap(facts).finding->change, HasSubstr("batch.micro"));

  facts = healthy();
  give(facts, Phase::kDataWait, 0.5);
  facts.given_per_s = 100;
  facts.wanted_per_s = 200;
  facts.workers = 16;  // as many as there are cores
  EXPECT_EQ(check_loader(facts).finding->change,
            "data.cache = \"decoded\" or data.fast_decode = true");
  facts.cache = "decoded";
  EXPECT_THAT(check_loader(facts).finding->change, HasSubstr("trainer data bench"));

  give(facts, Phase::kCommunication, 0.5);
  facts.compress = "bf16";
  EXPECT_THAT(check_communication(facts).finding->change, HasSubstr("larger batch.global"));
  facts.ranks = 1;
  EXPECT_FALSE(check_communication(facts).finding);

  facts = healthy();
  give(facts, Phase::kDataWait, 0.04);
  facts.io_stalled_percent = 60;
  EXPECT_TRUE(check_slow_disk(facts).finding);
  facts.data_kind = "idx";  // in memory
  EXPECT_FALSE(check_slow_disk(facts).finding);

  facts = healthy();
  facts.largest_share_ratio = 2;
  facts.balance = "throughput";
  EXPECT_FALSE(check_uneven_shards(facts).finding);
}

}  // namespace
}  // namespace brim::doctor
