#include "framework/doctor/facts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/experiment/run_data.h"
#include "tests/support/temporary_folder.h"

namespace brim::doctor {
namespace {

using nlohmann::json;
using testing::put_content;
using testing::TemporaryFolder;

RunFacts facts_from(const json& record, const std::string& recipe, const std::vector<json>& lines) {
  const TemporaryFolder folder;
  put_content(folder / "run.json", record.dump());
  put_content(folder / "recipe.toml", recipe);
  std::string text;
  for (const json& line : lines) text += line.dump() + "\n";
  put_content(folder / "metrics.jsonl", text);
  return facts_of(experiment::read_run(folder.path()));
}

TEST(Facts, TheWarmUpIsNotCounted) {
  const auto line = [](int step, double wait) {
    return json{{"step", step},
                {"step_s", 0.8 + wait},
                {"samples_per_s", 100},
                {"phases_s", {{"data_wait", wait}, {"backward", 0.8}}}};
  };
  const RunFacts facts = facts_from({}, "[batch]\nglobal = 80\n",
                                    {line(10, 50), line(20, 0.2), line(30, 0.2), line(40, 0.2)});
  EXPECT_NEAR(facts.share(Phase::kDataWait), 0.2, 1e-9);
  EXPECT_NEAR(facts.compute_share(), 0.8, 1e-9);
  EXPECT_NEAR(*facts.given_per_s, 80, 1e-6);
  EXPECT_NEAR(*facts.wanted_per_s, 100, 1e-6);
  EXPECT_NEAR((*facts.phases)[0].p50_s, 0.2, 0.004);
}

TEST(Facts, DecodingOnTheStepsCoresIsPartOfWhatDataCosts) {
  const json line = {
      {"step", 10},
      {"step_s", 1.0},
      {"samples_per_s", 80},
      {"phases_s", {{"data_wait", 0.2}, {"backward", 0.8}}},
      {"overlapped_s", {{"decode", 0.9}, {"decode_cpu", 0.6}, {"decode_wall", 0.45}}}};
  json second = line;
  second["step"] = 20;
  const auto facts_on = [&](const char* device, int ranks, int threads) {
    return facts_from({{"device", device},
                       {"ranks", ranks},
                       {"machine", {{"cores", 4}}},
                       {"job", {{"threads", threads}}}},
                      "[batch]\nglobal = 80\n", {line, second});
  };
  const RunFacts alone = facts_on("cpu", 1, 4);
  EXPECT_NEAR(alone.decode_share, 0.3, 1e-9);  // 0.6 s of two threads at the same time
  EXPECT_NEAR(alone.data_share(), 0.5, 1e-9);
  EXPECT_NEAR(alone.decode_load, 0.15, 1e-9);
  EXPECT_NEAR(*alone.given_per_s, 80, 1e-6);
  EXPECT_NEAR(*alone.wanted_per_s, 80 / 0.5, 1e-6);
  EXPECT_NEAR(facts_on("cpu", 2, 2).decode_load, 0.3, 1e-9);  // ranks share the cores
  EXPECT_NEAR(facts_on("cpu", 1, 3).decode_share, 0.3, 1e-9);
  EXPECT_EQ(facts_on("cpu", 1, 2).decode_share, 0);  // two cores are left for decoding
  EXPECT_EQ(facts_on("cuda:0", 1, 4).decode_share, 0);
}

TEST(Facts, EvaluationsAndCheckpointsAreNoTraining) {
  const json line = {{"step", 10},
                     {"step_s", 2.0},
                     {"samples_per_s", 40},
                     {"phases_s", {{"data_wait", 0.2}, {"backward", 0.8}, {"evaluation", 1.0}}}};
  json second = line;
  second["step"] = 20;
  const RunFacts facts = facts_from({}, "[batch]\nglobal = 80\n", {line, second});
  EXPECT_NEAR(*facts.given_per_s, 80, 1e-6);
  EXPECT_NEAR(*facts.wanted_per_s, 100, 1e-6);
}

TEST(Facts, RecordAndRecipeAreRead) {
  const RunFacts facts = facts_from(
      {{"device", "cuda:0"},
       {"ranks", 4},
       {"machine", {{"cores", 8}}},
       {"job",
        {{"precision", "fp16"},
         {"matrix_units", true},
         {"convolutions", true},
         {"channels_last", false},
         {"micro_batch", 16}}}},
      "[data]\nworkers = 3\ncache = \"encoded\"\ndecode = \"gpu\"\n[batch]\nglobal = 128\n"
      "[distributed]\ncompress = \"bf16\"\nbalance = \"cost\"\nstrategy = \"ddp\"\n",
      {{{"step", 5},
        {"memory", {{"peak_bytes", 7}, {"cap_bytes", 10}}},
        {"device", {{"busy_percent", 40}, {"slowed", 1}}},
        {"machine", {{"load", 16}}},
        {"process", {{"swapped_bytes", 5}, {"major_faults_per_s", 2}}},
        {"ranks", {{"slowest_ratio", 1.5}, {"slowest", 3}}}}});
  EXPECT_TRUE(*facts.is_cuda);
  EXPECT_EQ(*facts.ranks, 4);
  EXPECT_EQ(facts.precision, "fp16");
  EXPECT_TRUE(*facts.has_matrix_units && *facts.has_convolutions && !*facts.is_channels_last);
  EXPECT_EQ(*facts.micro_batch, 16);
  EXPECT_EQ(*facts.global_batch, 128);
  EXPECT_EQ(*facts.workers, 3);
  EXPECT_FALSE(facts.workers_are_auto);
  EXPECT_EQ(facts.cache, "encoded");
  EXPECT_EQ(facts.decode, "gpu");
  EXPECT_TRUE(facts.has_passes_alone);
  EXPECT_FALSE(
      facts_from({}, "[distributed]\nstrategy = \"ddp\"\nzero = true\n", {}).has_passes_alone);
  EXPECT_FALSE(facts_from({}, "[distributed]\nstrategy = \"fsdp\"\n", {}).has_passes_alone);
  EXPECT_EQ(facts.compress, "bf16");
  EXPECT_EQ(facts.balance, "cost");
  EXPECT_EQ(*facts.peak_bytes / *facts.cap_bytes, 0.7);
  EXPECT_EQ(facts.busy_percent->mean, 40);
  EXPECT_EQ(*facts.slowed_share, 1);
  EXPECT_NEAR(*facts.load_per_core, 2, 0.04);
  EXPECT_EQ(*facts.swapped_bytes, 5);
  EXPECT_EQ(*facts.slowest_rank_ratio, 1.5);
  EXPECT_EQ(*facts.slowest_rank, 3);
  EXPECT_FALSE(facts.largest_share_ratio);
}

TEST(Facts, TheSlowestRankIsExactOnceTheRunHasEnded) {
  const std::vector<json> lines = {{{"step", 5}, {"ranks", {{"slowest", 100}}}}};
  EXPECT_NEAR(static_cast<double>(*facts_from(json::object(), "", lines).slowest_rank), 100, 2);
  const RunFacts facts = facts_from(
      {{"per_rank",
        {{{"rank", 7}, {"busy_s", 1.5}}, {{"rank", 101}, {"busy_s", 2}}, {{"rank", 8}}, 3}}},
      "", lines);
  EXPECT_EQ(*facts.slowest_rank, 101);
  EXPECT_NEAR(
      static_cast<double>(*facts_from({{"per_rank", {{"rank", 1}}}}, "", lines).slowest_rank), 100,
      2);
}

TEST(Facts, LibrariesReadAtTheStartAreNoSwapping) {
  const auto line = [](int step, double faults) {
    return json{{"step", step}, {"process", {{"major_faults_per_s", faults}}}};
  };
  EXPECT_EQ(*facts_from({}, "", {line(5, 4000), line(10, 0), line(15, 0)}).major_faults_per_s, 0);
  const RunFacts swapping = facts_from({}, "", {line(5, 0), line(10, 150), line(15, 140)});
  EXPECT_NEAR(*swapping.major_faults_per_s, 140, 3);
}

TEST(Facts, NothingRecordedIsNothingKnown) {
  const RunFacts facts = facts_from(json::object(), "= broken", {});
  EXPECT_FALSE(facts.phases || facts.step_s || facts.is_cuda || facts.cores || facts.workers ||
               facts.peak_bytes || facts.busy_percent || facts.swapped_bytes);
  const RunFacts odd =
      facts_from({{"device", 3}, {"ranks", "x"}, {"machine", 1}, {"job", {1}}}, "data = 3\n",
                 {{{"step", 1}, {"phases_s", {{"forward", nullptr}}}}});
  EXPECT_FALSE(odd.phases || odd.is_cuda || odd.ranks || odd.cores);
}

}  // namespace
}  // namespace brim::doctor
