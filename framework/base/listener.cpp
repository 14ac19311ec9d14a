#include "framework/base/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "framework/base/error.h"

namespace brim {
namespace {

/// Negative, with errno set, where there is none.
int open_listener(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int yes = 1, no = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // after an earlier process
  if (address.ai_family == AF_INET6) {                           // IPv4 as well
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  }
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int code = errno;
  ::close(fd);
  errno = code;
  return -1;
}

int port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// getaddrinfo()'s answer, 0 where there are addresses.
int find_addresses(const std::string& host, int port, AddressList& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int unknown = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                    std::to_string(port).c_str(), &hints, &list);
  if (unknown == 0) addresses.reset(list);
  return unknown;
}

bool is_loopback(const addrinfo& address) {
  if (address.ai_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6*>(address.ai_addr)->sin6_addr);
  }
  const in_addr number = reinterpret_cast<sockaddr_in*>(address.ai_addr)->sin_addr;
  return ntohl(number.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool is_number(const std::string& host) {
  in6_addr bytes{};
  return ::inet_pton(AF_INET, host.c_str(), &bytes) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

}  // namespace

Listener listen_on(const std::string& host, int port) {
  AddressList addresses(nullptr, &::freeaddrinfo);
  const int unknown = find_addresses(host, port, addresses);
  if (unknown != 0) return {.problem = ::gai_strerror(unknown)};
  const addrinfo* const list = addresses.get();
  Listener result{.code = EADDRNOTAVAIL};
  for (const int family : {AF_INET6, AF_INET}) {  // the first takes connections of both
    for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
      if (address->ai_family != family) continue;
      const int fd = open_listener(*address);
      if (fd >= 0) return {.fd = fd, .port = port_of(fd)};
      if (result.code != EADDRINUSE) result.code = errno;
    }
  }
  result.problem = errno_text(result.code);
  return result;
}

bool is_known_here_only(const std::string& host) {
  if (host.empty() || host == "localhost" || is_number(host)) return false;
  AddressList addresses(nullptr, &::freeaddrinfo);
  if (find_addresses(host, 0, addresses) != 0) return false;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    if (!is_loopback(*address)) return false;
  }
  return true;
}

}  // namespace brim
