#include "framework/experiment/metrics_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace brim::experiment {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names(const std::string& line) {
  std::vector<LineMetric> metrics;
  EXPECT_TRUE(read_metrics_line(line, metrics)) << line;
  std::vector<std::string> names;
  for (const auto& metric : metrics) {
    names.push_back(std::string(metric.section) + "/" + std::string(metric.key));
  }
  return names;
}

TEST(MetricsLine, NumbersAreReadWithTheirSections) {
  std::vector<LineMetric> metrics;
  ASSERT_TRUE(read_metrics_line(
      R"({"loss": -1.5e-3,"phases_s":{"forward":0.25,"other":3},"step":10,"scale":null})",
      metrics));
  ASSERT_EQ(metrics.size(), 5U);
  EXPECT_EQ(metrics[0].value, -1.5e-3);
  EXPECT_EQ(metrics[1].section, "phases_s");
  EXPECT_EQ(metrics[1].key, "forward");
  EXPECT_EQ(metrics[1].value, 0.25);
  EXPECT_EQ(metrics[2].value, 3.0);
  EXPECT_EQ(metrics[3].section, "");
  EXPECT_EQ(metrics[3].value, 10.0);
  EXPECT_TRUE(std::isnan(metrics[4].value));
}

TEST(MetricsLine, WhatIsNoNumberIsPassedOver) {
  EXPECT_THAT(
      names(R"({"a":"text \" {","b":true,"c":[1,[2],{"d":3}],"e":{"f":{"g":1},"h":2},"i":4})"),
      ElementsAre("e/h", "/i"));
  EXPECT_THAT(names("{}"), ElementsAre());
  EXPECT_THAT(names(" { \"a\" : 1 , \"b\" : { } } \r"), ElementsAre("/a"));
}

TEST(MetricsLine, WhatIsNoWholeObjectIsRefused) {
  std::vector<LineMetric> metrics;
  for (const char* line :
       {"", "1", "[]", "{", "{\"a\":1", "{\"a\":1}x", "{\"a\" 1}", "{a:1}", "{\"a\":}",
        "{\"a\":nan}", "{\"a\":inf}", "{\"a\":-inf}", "{\"a\":-}", "{\"a\":1,}", "{\"a\":\"x}",
        "{\"a\":\"x\\", "{\"a\":{\"b\":1}", "{\"a\":[1}"}) {
    EXPECT_FALSE(read_metrics_line(line, metrics)) << line;
  }
  EXPECT_FALSE(read_metrics_line(std::string(100000, '['), metrics));
  EXPECT_FALSE(read_metrics_line("{\"a\":" + std::string(100000, '['), metrics));
}

}  // namespace
}  // namespace brim::experiment
