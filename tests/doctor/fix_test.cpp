// What --fix tries, and how it tells what came of it. tests/cli/test_fix.py runs it.
#include "framework/doctor/fix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace brim::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NamedFinding finding(const std::string& rule, std::vector<Settings> proposals) {
  return {rule, {Severity::kWarning, 0.5, "slow", "change it", std::move(proposals)}};
}

TEST(Proposals, EachFindingHasItsFirstBeforeAnyHasItsSecond) {
  Diagnosis diagnosis;
  diagnosis.findings = {finding("loader", {{"a=1"}, {"b=1"}, {"c=1"}}), finding("heat", {}),
                        finding("disk", {{"d=1"}, {"e=1"}})};
  std::vector<std::string> tried;
  for (const Proposal& proposal : proposals_of(diagnosis)) tried.push_back(proposal.settings[0]);
  EXPECT_THAT(tried, ElementsAre("a=1", "d=1", "b=1"));
}

TEST(Proposals, WhatTwoRulesProposeIsTriedOnce) {
  Diagnosis diagnosis;
  diagnosis.findings = {finding("loader", {{"a=1"}, {"b=1"}}), finding("disk", {{"a=1"}})};
  EXPECT_EQ(proposals_of(diagnosis).size(), 2U);
  EXPECT_THAT(proposals_of(Diagnosis()), IsEmpty());
}

TEST(Fix, IsToldAsLinesToWriteIntoTheRecipe) {
  Fix fix;
  const experiment::Ratio won{1.5, {1.4, 1.6, 0.95}};
  fix.attempts = {{.proposal = {"loader", {"data.workers=2", "data.cache=decoded"}},
                   .ratio = won,
                   .is_kept = true},
                  {.proposal = {"layout", {"precision.channels_last=true"}},
                   .ratio = {{1.0, {0.9, 1.1, 0.95}}}},
                  {.proposal = {"batch", {"batch.global=64"}}, .failure = "out of memory"}};
  fix.kept = fix.attempts[0].proposal.settings;
  fix.gain = won;
  EXPECT_EQ(fix.describe(),
            "tried    data.workers=2, data.cache=decoded: 1.50× (1.40 to 1.60), kept\n"
            "tried    precision.channels_last=true: 1.00× (0.90 to 1.10), no gain\n"
            "tried    batch.global=64: not measured: out of memory\n"
            "fix      1.50× (1.40 to 1.60) as fast as the recipe, with\n"
            "[data]\nworkers = 2\ncache = \"decoded\"\n");
  const nlohmann::json json = to_json(fix);
  EXPECT_EQ(json["attempts"][2]["failure"], "out of memory");
  EXPECT_EQ(json["attempts"][1]["kept"], false);
  EXPECT_EQ(json["gain"]["low"], 1.4);
  fix.kept.clear();
  fix.gain.reset();
  EXPECT_THAT(fix.describe(), HasSubstr("fix      no gain\n"));
  fix.attempts = {{.proposal = {"loader", {"data.workers=2"}},
                   .ratio = {{5.0, {4.0, 6.0, 0.5}}}}};  // of 2 runs
  EXPECT_EQ(fix.describe(),
            "tried    data.workers=2: 5.00× (4.00 to 6.00), too few runs to say: --repeats 4 or "
            "more\nfix      nothing kept: too few runs\n");
  EXPECT_EQ(Fix().describe(), "fix      no line of the recipe to try\n");
}

}  // namespace
}  // namespace brim::doctor
