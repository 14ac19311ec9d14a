// profile.json: what is written is read back, and anything else is refused.
#include "framework/telemetry/step_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace brim::telemetry {
namespace {

using nlohmann::json;

StepProfile some_profile() {
  StepProfile profile{.recipe = "job",
                      .device = "cpu",
                      .precision = "bf16",
                      .fused = "auto",
                      .steps = 10,
                      .micro_batch = 8,
                      .global_batch = 16,
                      .wall_s = 0.5};
  profile.phase_s[static_cast<size_t>(Phase::kForward)] = 0.25;
  profile.profiler_s[static_cast<size_t>(Phase::kForward)] = 0.01;
  profile.operators = {{.name = "aten::addmm",
                        .module = "fc",
                        .phase = Phase::kForward,
                        .inputs = {{"fp32", {8}}, {"fp32", {}}},
                        .calls = 2,
                        .self_s = 0.2,
                        .flops = 1e9,
                        .bytes = 1e6}};
  profile.peaks = {.flops_per_s = {{"bf16", 4e11}}, .bytes_per_s = 3e10, .call_s = 1e-6};
  profile.forms = {{"layer norm", 1e-3, 2e-3, true}};
  return profile;
}

TEST(StepProfile, IsReadBackAsItWasWritten) {
  const json written = to_json(some_profile());
  const auto read = read_step_profile(json::parse(written.dump()));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), written);
  EXPECT_EQ(read->operators.at(0).inputs.at(0).sizes, std::vector<int64_t>{8});
  EXPECT_TRUE(read->forms.at(0).is_fused);
}

TEST(StepProfile, RefusesWhatIsDamaged) {
  const json good = to_json(some_profile());
  for (const auto& [path, value] : std::vector<std::pair<std::string, json>>{
           {"/wall_s", "long"},
           {"/steps", -1},
           {"/recipe", "a\x1b[31m"},
           {"/operators", json::object()},
           {"/operators/0/phase", "lunch"},
           {"/operators/0/self_s", nullptr},
           {"/operators/0/flops", 1e300},
           {"/operators/0/inputs", json::array({json::array({"fp32", -1})})},
           {"/operators/0/inputs/0/1/0", -8},
           {"/operators/0/module", std::string(1000, 'x')},
           {"/peaks/flops_per_s/bf16", "fast"},
           {"/peaks", json::array()},
           {"/phases_s/forward", json()},
           {"/forms/0/is_fused", 1}}) {
    json damaged = good;
    damaged[json::json_pointer(path)] = value;
    EXPECT_FALSE(read_step_profile(damaged)) << path;
  }
  for (const auto& [key, value] : good.items()) {
    json without = good;
    without.erase(key);
    EXPECT_FALSE(read_step_profile(without)) << key;
  }
  EXPECT_FALSE(read_step_profile(json::array()));
  EXPECT_FALSE(read_step_profile(nullptr));
}

}  // namespace
}  // namespace brim::telemetry
