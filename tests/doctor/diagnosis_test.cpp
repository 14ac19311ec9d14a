#include "framework/doctor/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/doctor/verdict.h"
#include "tests/doctor/healthy.h"
#include "tests/support/temporary_folder.h"

namespace brim::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Diagnosis, AHealthyRunGetsSilence) {
  const Diagnosis diagnosis = diagnose(healthy());
  EXPECT_THAT(diagnosis.findings, IsEmpty());
  EXPECT_THAT(diagnosis.unjudged, IsEmpty());
  EXPECT_EQ(describe(diagnosis), "nothing stands out after 1,000 steps\n");
}

TEST(Diagnosis, TheWorstComesFirstAndAtMostSoManyAreToldAtTheEnd) {
  RunFacts facts = healthy();
  facts.load_per_core = 1.6;           // hint
  facts.slowed_share = 0.4;            // severe, and less of a loss than
  give(facts, Phase::kDataWait, 0.6);  // this
  facts.is_channels_last = false;      // compute share 0.37: hint
  const Diagnosis diagnosis = diagnose(facts);
  std::vector<std::string> rules;
  for (const auto& named : diagnosis.findings) rules.push_back(named.rule);
  EXPECT_THAT(rules, ElementsAre("loader_bound", "throttling", "cpu_oversubscribed", "layout"));
  ASSERT_EQ(diagnosis.verdict(3).size(), 3U);
  EXPECT_THAT(diagnosis.verdict(3)[0], HasSubstr("; change: data.cache"));  // no core is idle
}

TEST(Diagnosis, WhatIsNotRecordedIsListed) {
  RunFacts facts = healthy();
  facts.busy_percent.reset();
  const std::string text = describe(diagnose(facts));
  EXPECT_THAT(text, HasSubstr("not recorded: utilisation (launch_bound, swinging_utilisation)"));
  EXPECT_THAT(text, HasSubstr("nothing stands out"));
  EXPECT_EQ(to_json(diagnose(facts))["not_recorded"]["launch_bound"], "utilisation");
}

TEST(Diagnosis, AWarmUpIsNotJudged) {
  RunFacts facts = healthy();
  facts.steps = 19;
  give(facts, Phase::kDataWait, 0.9);
  EXPECT_THAT(diagnose(facts).findings, IsEmpty());
  EXPECT_THAT(describe(diagnose(facts)), HasSubstr("19 steps so far: too few"));
  facts.steps = 200;
  facts.seconds = 29;
  EXPECT_THAT(diagnose(facts).findings, IsEmpty());
  EXPECT_THAT(describe(diagnose(facts)), HasSubstr("200 steps in 29"));
  facts.seconds.reset();  // not recorded
  EXPECT_FALSE(diagnose(facts).findings.empty());
}

std::string line(int step, double wait_s) {
  return nlohmann::json{{"step", step},
                        {"step_s", 0.1 + wait_s},
                        {"samples_per_s", 64 / (0.1 + wait_s)},
                        {"phases_s", {{"data_wait", wait_s}, {"forward", 0.1}}}}
             .dump() +
         "\n";
}

TEST(Verdict, IsKeptInTheRecord) {
  const testing::TemporaryFolder folder;
  testing::put_content(folder / "run.json", R"({"device":"cpu","seed":7})");
  testing::put_content(folder / "recipe.toml", "[batch]\nglobal = 64\n");
  std::string lines;
  for (int step = 10; step <= 100; step += 10) lines += line(step, 0.3);
  testing::put_content(folder / "metrics.jsonl", lines);
  const auto sentences = conclude(folder.path());
  ASSERT_EQ(sentences.size(), 1U);
  EXPECT_THAT(sentences[0],
              HasSubstr("data-bound: 75 % of step time; the loader delivers 160 samples/s, the "
                        "device could take 640"));
  const auto record = nlohmann::json::parse(testing::content(folder / "run.json"));
  EXPECT_EQ(record["seed"], 7);
  ASSERT_EQ(record["verdict"].size(), 1U);
  EXPECT_EQ(record["verdict"][0]["rule"], "loader_bound");
  EXPECT_EQ(record["verdict"][0]["severity"], "severe");
}

TEST(Verdict, ADamagedRecordIsLeftAsItIs) {
  const testing::TemporaryFolder folder;
  testing::put_content(folder / "run.json", "{");
  conclude(folder.path());
  EXPECT_EQ(testing::content(folder / "run.json"), "{");
}

}  // namespace
}  // namespace brim::doctor
