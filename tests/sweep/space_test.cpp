// What --vary means, and which values come of it.
#include "framework/sweep/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "framework/sweep/search.h"
#include "tests/support/error_of.h"

namespace brim::sweep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const recipe::Value& recipe_of_test() {
  static const recipe::Value kRecipe =
      recipe::parse("[a]\nreal = 0.5\nwhole = 3\nchoice = \"auto\"\n", "test");
  return kRecipe;
}

Parameter parsed(const std::string& text) { return parse_parameter(text, recipe_of_test()); }

TEST(Space, TheRecipeSaysWhatIsWhole) {
  EXPECT_FALSE(parsed("a.real=0..1").is_integer);
  EXPECT_TRUE(parsed("a.whole=0..9").is_integer);
  EXPECT_TRUE(parsed("a.choice=1..9").is_integer);
  EXPECT_FALSE(parsed("a.choice=1.0..9").is_integer);
}

TEST(Space, RangesWithACountAreLists) {
  EXPECT_THAT(parsed("a.real=1e-3..1e-1:log:3").values, ElementsAre("0.001", "0.01", "0.1"));
  EXPECT_THAT(parsed("a.real=0..1:3").values, ElementsAre("0.0", "0.5", "1.0"));
  EXPECT_THAT(parsed("a.whole=1..3:9").values, ElementsAre("1", "2", "3"));
}

TEST(Space, ListsKeepQuotesAndBrackets) {
  EXPECT_THAT(parsed("a.x=\"b,c\",[1,2]").values, ElementsAre("\"b,c\"", "[1,2]"));
  EXPECT_THAT(parsed("a.path=\"../x\"").values, ElementsAre("\"../x\""));
}

TEST(Space, DrawsReachBothEnds) {
  EXPECT_EQ(setting_at(parsed("a.whole=2..4"), 0.0), "a.whole=2");
  EXPECT_EQ(setting_at(parsed("a.whole=2..4"), 0.99), "a.whole=4");
  EXPECT_EQ(setting_at(parsed("a.whole=16..64:log"), 0.9999), "a.whole=64");
  EXPECT_EQ(setting_at(parsed("a.real=1e-4..1:log"), 0.5), "a.real=0.01");
  EXPECT_EQ(setting_at(parsed("a.x=p,q"), 0.5), "a.x=q");
  EXPECT_EQ(setting_at(parsed("a.real=0.12344..0.2"), 0.0), "a.real=0.12344");  // within, rounded
}

TEST(Space, RangesStayNumbersAtTheirLimits) {
  EXPECT_THAT(setting_at(parsed("a.real=1e308..1.7976931348623157e308"), 0.99999999),
              HasSubstr("a.real=1.797693"));  // four digits would be more than a number holds
  for (const char* text : {"a.real=-1e308..1e308", "a.real=1e-300..1e300:log"}) {
    EXPECT_THAT(error_of(Exit::kRecipe, [&] { parsed(text); }), HasSubstr("a narrower range"));
  }
}

TEST(Space, AGridHasEachCombinationOnce) {
  const std::vector<Parameter> space = parse_space({"a.x=p,q", "a.whole=1..3:3"}, recipe_of_test());
  const std::vector<Settings> all = grid(space);
  ASSERT_EQ(all.size(), 6U);
  EXPECT_THAT(all[1], ElementsAre("a.x=p", "a.whole=2"));
  EXPECT_EQ(std::set<Settings>(all.begin(), all.end()).size(), 6U);
  const std::vector<Settings> other = shuffled(all, 1);
  EXPECT_EQ(std::set<Settings>(other.begin(), other.end()).size(), 6U);
}

TEST(Space, AFiniteSpaceIsDrawnWithoutRepeating) {
  const std::vector<Parameter> space = parse_space({"a.x=p,q", "a.y=r,s"}, recipe_of_test());
  const auto all = draw(space, random_points(0, 2), 4, {});
  EXPECT_EQ(std::set<Settings>(all.begin(), all.end()).size(), 4U);
  const auto rest = draw(space, random_points(0, 2), 2, {all[0], all[1]});
  EXPECT_EQ(rest, std::vector<Settings>(all.begin() + 2, all.end()));
  EXPECT_EQ(draw(space, random_points(0, 2), 2, {all[0], all[1], {"a.x=other"}}), rest);
  EXPECT_THAT(
      error_of(Exit::kRecipe,
               [&] {
                 draw(space, random_points(0, 2), 1, {all.begin(), all.end()});
               }),
      HasSubstr("--trials 1: the search space has 4 combinations, and the sweep has 4 trials "
                "already"));
}

}  // namespace
}  // namespace brim::sweep
