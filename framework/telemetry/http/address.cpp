#include "framework/telemetry/http/address.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace brim::telemetry {
namespace {

constexpr int kMaxPort = 65535;

}  // namespace

std::optional<Address> read_address(std::string_view text, std::string& why) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    why = "there is no port";
    return std::nullopt;
  }
  Address address{.host = std::string(text.substr(0, colon)), .port = -1};
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (code != std::errc() || stop != end || address.port < 0 || address.port > kMaxPort) {
    why = "the port is not a number from 0 to 65535";
    return std::nullopt;
  }
  std::string& host = address.host;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (host.empty()) why = "the address is empty";
  } else if (host.find_first_of(":[]/ ") != std::string::npos) {
    why = "the address is none (IPv6 goes in brackets)";
  } else if (host.empty()) {
    host = "127.0.0.1";
  }
  return why.empty() ? std::optional(address) : std::nullopt;
}

std::string url_of(const Address& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", is_ipv6 ? "[" : "", address.host, is_ipv6 ? "]" : "",
                     address.port);
}

bool is_loopback(std::string_view host) {
  if (host == "::1" || host == "localhost") return true;
  const bool is_number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_number && host.starts_with("127.");
}

}  // namespace brim::telemetry
