// Names go through rules there and back.
#include "framework/nn/weight_names.h"

#include <gtest/gtest.h>

namespace brim::nn {
namespace {

const std::vector<NameRule> kRules = {{"token", "cls"},
                                      {"features.#.1.#.*", "stages.#.blocks.#.*"},
                                      {"scale.#", "gamma.#", true},
                                      {"head.*", "fc.*"}};

std::string ours(std::string_view name) {
  const auto found = to_ours(name, kRules);
  return found ? found->name : "none";
}

std::string theirs(std::string_view name) {
  const auto found = to_theirs(name, kRules);
  return found ? found->name : "none";
}

TEST(WeightNames, GoThereAndBack) {
  for (const auto& [our, their] : std::vector<std::pair<std::string, std::string>>{
           {"token", "cls"},
           {"features.12.1.3.conv.weight", "stages.12.blocks.3.conv.weight"},
           {"scale.7", "gamma.7"},
           {"head.bias", "fc.bias"}}) {
    EXPECT_EQ(theirs(our), their);
    EXPECT_EQ(ours(their), our);
  }
  EXPECT_TRUE(to_ours("gamma.7", kRules)->rule->is_flat_there);
}

TEST(WeightNames, ThatNoRuleFitsHaveNoOther) {
  for (const char* name : {"", "tokens", "toke", "features.a.1.3.weight", "features.1.1.3.",
                           "features..1.3.weight", "head.", "head", "scale.", "scale.7x"}) {
    EXPECT_EQ(theirs(name), "none") << name;
  }
}

}  // namespace
}  // namespace brim::nn
