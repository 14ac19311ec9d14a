// Areas in proportion to values, side by side, within the whole; texts that can't break out.
#include "framework/experiment/report/treemap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace brim::experiment {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

bool overlap(const Rectangle& a, const Rectangle& b) {
  constexpr double kNothing = 1e-6;
  return std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x) > kNothing &&
         std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y) > kNothing;
}

TEST(Treemap, AreasAreInProportionAndDoNotOverlap) {
  const std::vector<double> values = {60, 20, 10, 5, 3, 1, 1};
  const auto places = squarify(values, {0, 0, 240, 100});
  ASSERT_EQ(places.size(), values.size());
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_NEAR(places[i].width * places[i].height, values[i] * 240, 1e-6);
    EXPECT_GE(places[i].x, -1e-9);
    EXPECT_LE(places[i].x + places[i].width, 240 + 1e-6);
    EXPECT_LE(places[i].y + places[i].height, 100 + 1e-6);
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(overlap(places[i], places[j])) << i << " " << j;
  }
}

TEST(Treemap, CellsAreNearlySquare) {
  const auto places = squarify(std::vector<double>(12, 1.0), {0, 0, 240, 100});
  for (const Rectangle& place : places) {
    EXPECT_LT(std::max(place.width / place.height, place.height / place.width), 2.5);
  }
}

TEST(Treemap, HasNoCellForNothing) {
  EXPECT_EQ(draw_treemap({}), "");
  EXPECT_EQ(draw_treemap({{"a", "a", 0.0, ""}}), "");
  EXPECT_EQ(squarify({0, 0}, {}).size(), 2U);
}

TEST(Treemap, EscapesNames) {
  const std::string html = draw_treemap({{"g", "<script>\"x\"</script>", 1, "<b>"}});
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;&quot;x&quot;"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
}

}  // namespace
}  // namespace brim::experiment
