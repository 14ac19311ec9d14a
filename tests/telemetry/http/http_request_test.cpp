#include "framework/telemetry/http/http_request.h"

#include <gtest/gtest.h>

#include <string>

namespace brim::telemetry {
namespace {

using State = HttpRequest::State;

TEST(HttpRequest, IsReadWhole) {
  const HttpRequest request =
      read_request("GET /metrics?x=1 HTTP/1.1\r\nHost: a:9400\r\nAccept: */*\r\n\r\nbody");
  EXPECT_EQ(request.state, State::kWhole);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_EQ(request.query, "x=1");
  EXPECT_EQ(request.host, "a:9400");
  EXPECT_EQ(read_request("GET /? HTTP/1.1\nhOST: \t[::1] \nHosts: b\n\n").host, "[::1]");
  EXPECT_EQ(read_request("HEAD / HTTP/1.0\n\n").state, State::kWhole);
}

TEST(HttpRequest, IsUnfinishedAtEveryByteBeforeItsEnd) {
  const std::string head = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t size = 0; size < head.size(); ++size) {
    EXPECT_EQ(read_request(head.substr(0, size)).state, State::kUnfinished) << size;
  }
  EXPECT_EQ(read_request(head).state, State::kWhole);
}

TEST(HttpRequest, ThatIsNoneIsRefused) {
  for (const char* head :
       {"\r\n\r\n", "GET /\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "get / HTTP/1.1\r\n\r\n",
        "GET x HTTP/1.1\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET / HTTP/1.1\r\nno field\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n", "GET / HTTP/1.1\r\na b: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "GET /a b HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\na: \x01\r\n\r\n",
        "GETGETGETGETGETGET / HTTP/1.1\r\n\r\n", "\x16\x03\x01 TLS\n"}) {
    EXPECT_EQ(read_request(head).state, State::kBad) << head;
  }
  EXPECT_EQ(read_request("garbage\n").state, State::kBad);  // at once, without its end
}

TEST(HttpRequest, HasALimit) {
  std::string head = "GET /";
  head.resize(kLongestHead - 1, 'x');
  EXPECT_EQ(read_request(head).state, State::kUnfinished);
  head += 'x';
  EXPECT_EQ(read_request(head).state, State::kTooLong);
  EXPECT_EQ(read_request(head + " HTTP/1.1\r\n\r\n").state, State::kTooLong);
}

}  // namespace
}  // namespace brim::telemetry
