#include "framework/telemetry/prometheus/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/error.h"

namespace brim::telemetry {
namespace {

using ::testing::HasSubstr;

TEST(PrometheusTarget, IsAnAddressOrAFile) {
  EXPECT_FALSE(read_prometheus_target(""));
  const auto is = [](const char* text, const char* host, int port) {
    const auto target = read_prometheus_target(text);
    return target && target->address.host == host && target->address.port == port &&
           target->file.empty();
  };
  EXPECT_TRUE(is("127.0.0.1:9400", "127.0.0.1", 9400));
  EXPECT_TRUE(is(":9400", "127.0.0.1", 9400));
  EXPECT_TRUE(is("0.0.0.0:65535", "0.0.0.0", 65535));
  EXPECT_TRUE(is("[::1]:0", "::1", 0));
  EXPECT_TRUE(is("node7:9400", "node7", 9400));
  EXPECT_EQ(read_prometheus_target("file:/x/brim.prom")->file, "/x/brim.prom");
}

TEST(PrometheusTarget, ThatIsNoneIsRefusedInWords) {
  for (const char* text : {"9400", ":", ":65536", ":-1", ":9400x", ": 9400", "::1:9400", "[]:1",
                           "a/b:1", "file:brim.prom", "file:/x/brim.txt", "file:"}) {
    try {
      read_prometheus_target(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kRecipe);
      EXPECT_THAT(error.what(), HasSubstr(std::string("prometheus = \"") + text + "\""));
    }
  }
}

}  // namespace
}  // namespace brim::telemetry
