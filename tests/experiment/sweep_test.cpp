#include "framework/experiment/bench/sweep.h"

#include <gtest/gtest.h>

#include "framework/base/error.h"

namespace brim::experiment {
namespace {

using Strings = std::vector<std::string>;

std::string complaint(const std::vector<std::string>& sweeps) {
  try {
    std::vector<Sweep> parsed;
    for (const std::string& text : sweeps) parsed.push_back(parse_sweep(text));
    combinations(parsed);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    return error.what();
  }
  return "";
}

TEST(Sweep, ValuesArePartedByCommasOutsideOfBracketsAndQuotes) {
  const Sweep sweep = parse_sweep(R"(train.recompute=["a","b"],[],'x,y')");
  EXPECT_EQ(sweep.key, "train.recompute");
  EXPECT_EQ(sweep.values, (Strings{R"(["a","b"])", "[]", "'x,y'"}));
}

TEST(Sweep, EveryCombinationComesOnce) {
  const auto all = combinations({{"a.b", {"1", "2"}}, {"c.d", {"x", "y"}}});
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[1], (Strings{"a.b=1", "c.d=y"}));
  EXPECT_EQ(all[2], (Strings{"a.b=2", "c.d=x"}));
  EXPECT_EQ(combinations({}), std::vector<Strings>{{}});
}

TEST(Sweep, WhatIsNoSweepIsRefusedInWords) {
  EXPECT_NE(complaint({"batch.micro"}).find("expected a key and its values"), std::string::npos);
  EXPECT_NE(complaint({"=8"}).find("expected a key and its values"), std::string::npos);
  EXPECT_NE(complaint({"batch.micro="}).find("the list of values is empty"), std::string::npos);
  EXPECT_NE(complaint({"batch.micro=8,,16"}).find("value 2 of the list is empty"),
            std::string::npos);
  EXPECT_NE(complaint({"batch.micro=8,8"}).find("8 is given twice"), std::string::npos);
  EXPECT_NE(complaint({"a.b=1", "a.b=2"}).find("given twice"), std::string::npos);
  EXPECT_NE(complaint({"train.steps=1,2"}).find("give --steps"), std::string::npos);
  std::string many = "a.b=0";
  for (int i = 1; i < 300; ++i) many += "," + std::to_string(i);
  EXPECT_NE(complaint({many}).find("more than 256"), std::string::npos);
}

}  // namespace
}  // namespace brim::experiment
