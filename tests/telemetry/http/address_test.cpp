#include "framework/telemetry/http/address.h"

#include <gtest/gtest.h>

namespace brim::telemetry {
namespace {

TEST(Address, HasAUrlThatLeadsBackToIt) {
  for (const char* text : {"127.0.0.1:8000", "[::1]:9400", "node7:0", "0.0.0.0:65535"}) {
    std::string why;
    const auto address = read_address(text, why);
    ASSERT_TRUE(address) << why;
    EXPECT_EQ(url_of(*address), std::string("http://") + text);
  }
}

TEST(Address, IsLocalByItsNumberOrItsName) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"", "0.0.0.0", "::", "127.evil.example", "localhost.evil.example",
                           "1270.0.0.1", "10.0.0.1", "node7"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace brim::telemetry
