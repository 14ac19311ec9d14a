// What `trainer doctor RUN --prove` makes of two speeds.
#include "framework/doctor/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/doctor/healthy.h"

namespace brim::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RunFacts alone(double given_per_s) {
  RunFacts facts = healthy();
  facts.ranks = 1;
  facts.given_per_s = given_per_s;
  give(facts, Phase::kDataWait, 0.28);
  return facts;
}

TEST(Proof, TheGapIsWhatDataCosts) {
  const Proof proof = prove(alone(1063), 1540, 40);
  EXPECT_NEAR(*proof.gap(), 0.31, 0.001);
  EXPECT_THAT(proof.sentence(), StartsWith("data costs you 31 %: "));
  EXPECT_THAT(proof.sentence(), HasSubstr("1,540 samples/s"));
  EXPECT_THAT(proof.sentence(),
              HasSubstr("the run got 1,063 (by its own record data cost it 28 %)"));
  const nlohmann::json json = to_json(proof);
  EXPECT_EQ(json["steps"], 40);
  EXPECT_EQ(json["run_per_s"], 1063.0);
  EXPECT_NEAR(json["gap"].get<double>(), 0.31, 0.001);
}

TEST(Proof, AGapFarBeyondTheRecordIsNotLaidToDataAlone) {
  EXPECT_THAT(prove(alone(206), 2961, 40).sentence(),
              StartsWith("data, or what else ran beside the steps, costs you 93 %: "));
}

TEST(Proof, WhatTheRunRecordedIsAShareOfTraining) {
  RunFacts facts = alone(1063);
  (*facts.phases)[static_cast<size_t>(Phase::kEvaluation)].share = 0.5;
  EXPECT_NEAR(prove(facts, 1540, 40).recorded_share, 0.56, 0.001);
}

TEST(Proof, AShortRunIsComparedWithCaution) {
  RunFacts facts = alone(1063);
  EXPECT_THAT(prove(facts, 1540, 40).sentence(), Not(HasSubstr("too short")));
  facts.steps = 12;
  const Proof proof = prove(facts, 1540, 40);
  EXPECT_THAT(proof.sentence(), StartsWith("data costs you 31 %: "));
  EXPECT_THAT(proof.sentence(), HasSubstr("; the run is too short to compare by"));
  EXPECT_EQ(to_json(proof)["too_short"], true);
}

TEST(Proof, NoiseIsNoGap) {
  EXPECT_THAT(prove(alone(980), 1000, 40).sentence(), StartsWith("data costs you next to nothing"));
  EXPECT_THAT(prove(alone(1020), 1000, 40).sentence(),
              StartsWith("data costs you next to nothing"));
  EXPECT_THAT(prove(alone(1300), 1000, 40).sentence(), StartsWith("the run was faster than its"));
}

TEST(Proof, SeveralRanksAreThatManyTimesOne) {
  RunFacts facts = alone(3000);
  facts.ranks = 4;
  const Proof proof = prove(facts, 1000, 40);
  EXPECT_NEAR(*proof.gap(), 0.25, 1e-9);
  EXPECT_THAT(proof.sentence(), StartsWith("data and the other ranks cost you 25 %: "));
  EXPECT_THAT(proof.sentence(), HasSubstr("4,000 samples/s"));
}

TEST(Proof, WhatCannotBeComparedIsNot) {
  RunFacts facts = alone(0);
  facts.given_per_s.reset();
  const Proof nothing = prove(facts, 1000, 40);
  EXPECT_FALSE(nothing.gap());
  EXPECT_THAT(nothing.sentence(), HasSubstr("has recorded no speed"));
  EXPECT_TRUE(to_json(nothing)["run_per_s"].is_null());

  Proof elsewhere = prove(alone(500), 1000, 40);
  elsewhere.otherness = {"the run was on cuda:0 and this is cpu"};
  EXPECT_FALSE(elsewhere.gap());
  EXPECT_THAT(elsewhere.sentence(), HasSubstr("can't be compared: the run was on cuda:0"));
}

}  // namespace
}  // namespace brim::doctor
