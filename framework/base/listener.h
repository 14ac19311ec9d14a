// A TCP socket that listens.
#pragma once

#include <string>

namespace brim {

struct Listener {
  int fd = -1;  // closed on exec; negative where there is none:
  int port = 0;
  int code = 0;              // then errno's, or 0 where the host's name means no address,
  std::string problem = {};  // and what it is in words
};

/// Listens on `host` (a name or a number; empty: on every interface, by IPv4 and IPv6), on any free
/// port where `port` is 0.
Listener listen_on(const std::string& host, int port);

/// Whether that is a name, not a number nor "localhost", by which no other machine comes in: Debian
/// gives a machine's own name 127.0.1.1.
bool is_known_here_only(const std::string& host);

}  // namespace brim
