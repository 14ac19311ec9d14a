// Each rule of a profile at three severities, just before the first of them, and where something
// else is the matter.
#include "framework/doctor/profile_rules/profile_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace brim::doctor {
namespace {

using telemetry::OperatorCalls;
using telemetry::TensorShape;
using ::testing::HasSubstr;
using Change = std::function<void(StepProfile&, double share)>;

/// A step of one second on a device of 1 TFLOP/s and 100 GB/s, with nothing in it.
StepProfile empty_step() {
  StepProfile profile{.device = "cpu",
                      .precision = "bf16",
                      .fused = "auto",
                      .steps = 10,
                      .micro_batch = 8,
                      .global_batch = 32,
                      .wall_s = 1.0};
  profile.peaks = {
      .flops_per_s = {{"bf16", 1e12}, {"fp32", 1e11}}, .bytes_per_s = 1e11, .call_s = 1e-6};
  return profile;
}

Change on_gpu(const Change& change) {
  return [change](StepProfile& profile, double share) {
    profile.device = "cuda:0";
    change(profile, share);
  };
}

/// Calls that take `share` of it, at their roofline where they multiply.
OperatorCalls calls(const std::string& name, const std::string& module, double share,
                    std::vector<TensorShape> inputs, double flops_share = 0) {
  return {.name = name,
          .module = module,
          .phase = Phase::kForward,
          .inputs = std::move(inputs),
          .calls = 4,
          .self_s = share,
          .flops = 1e12 * flops_share,
          .bytes = 1e6};
}

OperatorCalls product(double share, int64_t in, int64_t out) {
  return calls("aten::addmm", "fc", share,
               {{"bf16", {out}}, {"bf16", {64, in}}, {"bf16", {in, out}}}, share);
}

OperatorCalls grouped(double share, int64_t channels_of_group, double efficiency = 0.1) {
  return calls("aten::mkldnn_convolution", "layer1.conv2", share,
               {{"bf16", {8, 64, 28, 28}}, {"bf16", {64, channels_of_group, 3, 3}}},
               efficiency * share);
}

struct Case {
  std::string name;
  RuleResult (*check)(const StepProfile&);
  Change change;
  double near_miss, hint, warning, severe;
  std::string message;  // part of it, at severe
  std::string advice;
  std::function<void(StepProfile&)> otherwise;  // makes it no matter
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const auto add = [](OperatorCalls (*make)(double)) {
  return [make](StepProfile& p, double share) { p.operators.push_back(make(share)); };
};

std::vector<Case> cases() {
  return {
      {"width", check_alignment, on_gpu(add([](double share) { return product(share, 250, 512); })),
       0.049, 0.06, 0.2, 0.4, "no multiple of 8 take 40 % of the step, most in fc, which has 250",
       "256 values in fc, not 250",
       [](StepProfile& p) { p.operators[0] = product(0.5, 256, 512); }},
      {"width on a CPU", check_alignment,
       add([](double share) { return product(2 * share, 12, 512); }), 0.099, 0.11, 0.31, 0.49 * 2,
       "most in fc, which has 12", "16 values in fc, not 12",
       [](StepProfile& p) { p.operators[0] = product(0.9, 1001, 512); }},
      {"width of a layer by blocks", check_alignment, add([](double share) {
         return calls("brim::block_linear", "fc", 2 * share,
                      {{"bf16", {512, 512}}, {"fp32", {12, 512}}}, 2 * share);
       }),
       0.099, 0.11, 0.31, 0.49 * 2, "most in fc, which has 12", "16 values in fc, not 12",
       [](StepProfile& p) { p.operators[0].inputs[1].sizes[0] = 16; }},
      {"classes", check_alignment,
       on_gpu(add([](double share) { return product(share, 512, 250); })), 0.049, 0.06, 0.2, 0.4,
       "most in fc, which has 250", "256 values in fc",
       [](StepProfile& p) {
         p.operators.push_back(calls("brim::cross_entropy", "loss", 0, {{"bf16", {64, 250}}}));
       }},
      {"vocabulary", check_alignment, on_gpu([](StepProfile& p, double share) {
         p.operators = {
             product(share, 512, 50264),
             calls("aten::embedding", "wte", 0, {{"fp32", {50264, 512}}, {"int64", {8}}})};
       }),
       0.049, 0.06, 0.2, 0.4, "no multiple of 64", "model.pad_vocabulary_to = 64",
       [](StepProfile& p) { p.operators[0] = product(0.5, 512, 50304); }},
      {"images' channels", check_alignment, on_gpu([](StepProfile& p, double share) {
         p.operators = {calls("aten::convolution", "conv1", share,
                              {{"bf16", {8, 3, 224, 224}}, {"bf16", {60, 3, 7, 7}}}, share)};
       }),
       0.049, 0.06, 0.2, 0.4, "most in conv1, which has 60", "64 values in conv1",
       [](StepProfile& p) { p.operators[0].inputs[1].sizes[0] = 64; }},
      {"tiny products", check_tiny_products,
       [](StepProfile& p, double share) {
         p.operators = {
             calls("aten::mm", "h.0", share, {{"bf16", {4, 4}}, {"bf16", {4, 4}}}, 1e-9)};
         p.operators[0].bytes = 96;
       },
       0.049, 0.06, 0.2, 0.4, "4 matrix products a step cost more to call than to compute",
       "batch.micro = 32", [](StepProfile& p) { p.operators[0].flops = 1e10; }},
      {"fp32", check_fp32_in_autocast, add([](double share) {
         return calls("aten::add", "h.0.mlp", share, {{"fp32", {64, 64}}, {"fp32", {64, 64}}});
       }),
       0.049, 0.06, 0.2, 0.4, "fp32 under bf16 take 40 % of the step, most in h.0.mlp",
       "in h.0.mlp: let aten::add take bf16, as after x.to(at::kBFloat16)",
       [](StepProfile& p) { p.operators[0].name = "aten::bernoulli_"; }},
      {"casts", check_conversions, add([](double share) {
         return calls("aten::copy_", "h.0.mlp", share, {{"fp32", {64, 64}}, {"bf16", {64, 64}}});
       }),
       0.049, 0.06, 0.15, 0.25, "4 casts between formats a step take 250.0 ms, 25 % of it",
       "in h.0.mlp: no .to() between layers",
       [](StepProfile& p) { p.operators[0].inputs[0].dtype = "bf16"; }},
      {"layouts", check_layout_copies, add([](double share) {
         return calls("aten::copy_", "conv1", share,
                      {{"bf16", {8, 64, 28, 28}}, {"bf16", {8, 64, 28, 28}}});
       }),
       0.049, 0.06, 0.15, 0.25, "4 copies into another memory order", "precision.channels_last",
       [](StepProfile& p) { p.operators[0].inputs[0].dtype = "fp32"; }},
      {"waits", check_waiting_operators,
       [](StepProfile& p, double waits) {
         p.device = "cuda:0";
         p.operators = {calls("aten::_local_scalar_dense", "router", 0.01, {{"fp32", {}}})};
         p.operators[0].calls = waits;
       },
       0.4, 0.6, 3, 11, "the host waits for the GPU 11.0 times a step, most in router",
       "at::where() in place of item()", [](StepProfile& p) { p.device = "cpu"; }},
      {"unfused", check_unfused,
       [](StepProfile& p, double share) {
         p.fused = "false";
         p.operators = {
             calls("aten::native_batch_norm", "bn1", share, {{"bf16", {8, 64, 28, 28}}})};
       },
       0.049, 0.06, 0.15, 0.25, "Brim has a fused batch norm", "precision.fused = \"auto\"",
       [](StepProfile& p) {
         p.forms = {{"batch norm, ReLU BFloat16[8,64,28,28]", 2, 1, false}};
       }},
      {"unfused layers of a library", check_unfused, add([](double share) {
         return calls("aten::native_layer_norm_backward", "norm", share, {{"fp32", {8, 64}}});
       }),
       0.049, 0.06, 0.15, 0.25, "Brim has a fused layer norm", "nn::LayerNorm in norm",
       [](StepProfile& p) { p.operators[0].name = "brim::layer_norm_backward"; }},
      {"groups", check_grouped_convolutions,
       add([](double share) { return grouped(share / 0.9, 1); }), 0.049, 0.06, 0.2, 0.4,
       "at 10 % of their roofline, most in layer1.conv2", "fewer groups in layer1.conv2",
       [](StepProfile& p) { p.operators = {grouped(0.5, 64)}; }},
      {"groups at their roofline", check_grouped_convolutions,
       add([](double share) { return grouped(share / 0.5, 1, 0.5); }), 0.049, 0.06, 0.2, 0.4,
       "at 50 % of their roofline", "fewer groups",
       [](StepProfile& p) { p.operators = {grouped(0.9, 1, 0.99)}; }},
      {"embedding", check_dense_embedding,
       [](StepProfile& p, double share) {
         p.operators = {
             calls("aten::embedding_dense_backward", "wte", share,
                   {{"fp32", {8, 32, 64}}, {"int64", {8, 32}}}),
             calls("aten::embedding", "wte", 0, {{"fp32", {50257, 64}}, {"int64", {8, 32}}})};
       },
       0.049, 0.06, 0.15, 0.25, "wte, 50257 rows of which a pass uses at most 256, takes 25 %",
       "batch.micro = 16", [](StepProfile& p) { p.operators[1].inputs[0].sizes[0] = 97; }},
      {"loss", check_wide_loss, add([](double share) {
         return calls("aten::_log_softmax", "loss", share, {{"fp32", {256, 50257}}});
       }),
       0.049, 0.06, 0.15, 0.25, "the loss in fp32 over 50257 classes takes 25 % of the step",
       "nn::fused_cross_entropy() of logits in bf16",
       [](StepProfile& p) { p.operators[0].inputs[0].dtype = "bf16"; }},
      {"random numbers", check_random_numbers, add([](double share) {
         return calls("aten::bernoulli_", "attn", share, {{"fp32", {32, 4, 128, 128}}});
       }),
       0.049, 0.06, 0.15, 0.25, "takes 25 % of the step, most in attn", "model.dropout = 0",
       [](StepProfile& p) { p.operators[0].phase = Phase::kTransform; }},
      {"transform", check_transform_on_cpu,
       [](StepProfile& p, double share) {
         p.phase_s[static_cast<size_t>(Phase::kTransform)] = share;
       },
       0.049, 0.06, 0.2, 0.4, "on the CPU takes 40 % of the step", "data.augment.mixup = 0",
       [](StepProfile& p) { p.device = "cuda:0"; }},
  };
}

class ProfileRuleTest : public ::testing::TestWithParam<Case> {
 protected:
  StepProfile with(double value) const {
    StepProfile profile = empty_step();
    GetParam().change(profile, value);
    return profile;
  }
};

TEST_P(ProfileRuleTest, SpeaksFromItsHintOn) {
  const Case& c = GetParam();
  EXPECT_FALSE(c.check(empty_step()).finding);
  EXPECT_FALSE(c.check(with(c.near_miss)).finding);
  EXPECT_EQ(c.check(with(c.hint)).finding.value().severity, Severity::kHint);
  EXPECT_EQ(c.check(with(c.warning)).finding.value().severity, Severity::kWarning);
  const RuleResult severe = c.check(with(c.severe));
  EXPECT_EQ(severe.finding.value().severity, Severity::kSevere);
  EXPECT_THAT(severe.finding->message, HasSubstr(c.message));
  EXPECT_THAT(severe.finding->change, HasSubstr(c.advice));
}

TEST_P(ProfileRuleTest, SaysNothingWhereItIsNoMatter) {
  StepProfile profile = with(GetParam().severe);
  GetParam().otherwise(profile);
  EXPECT_FALSE(GetParam().check(profile).finding);
}

INSTANTIATE_TEST_SUITE_P(All, ProfileRuleTest, ::testing::ValuesIn(cases()));

TEST(ProfileFindings, AreAskedOfEveryRuleAndSorted) {
  EXPECT_TRUE(findings_of(empty_step()).empty());
  StepProfile profile = empty_step();
  profile.device = "cuda:0";
  profile.operators = {product(0.06, 250, 512),
                       calls("aten::copy_", "fc", 0.5, {{"fp32", {64}}, {"bf16", {64}}})};
  const auto findings = findings_of(profile);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].rule, "dtype_conversions");
  EXPECT_EQ(findings[1].rule, "alignment");
}

}  // namespace
}  // namespace brim::doctor
