// "127.0.0.1:8000": where a server of ours listens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace brim::telemetry {

struct Address {
  std::string host;  // a name, an IPv4 or IPv6 address without brackets
  int port = 0;      // 0: any that is free
};

/// "127.0.0.1:9400", ":9400" (this machine alone), "[::1]:9400", "0.0.0.0:9400" (anyone). nullopt
/// for another text; `why` then says what is wrong with it.
std::optional<Address> read_address(std::string_view text, std::string& why);

/// "http://[::1]:9400".
std::string url_of(const Address& address);

/// Whether only this machine reaches the host: 127.x.y.z, ::1, localhost.
bool is_loopback(std::string_view host);

}  // namespace brim::telemetry
