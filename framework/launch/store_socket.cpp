#include "framework/launch/store_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "framework/base/error.h"
#include "framework/launch/processes.h"

namespace brim::launch {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Addresses to listen on; of all interfaces where `host` is null.
Addresses resolve(const char* host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (problem != 0) {
    throw UsageError("--master-addr: '{}' means no address: {}", host == nullptr ? "" : host,
                     gai_strerror(problem));
  }
  return {found, &freeaddrinfo};
}

/// A listening socket, or -1 with errno set.
int listen_on(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {  // IPv4 as well
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0)
    return fd;
  const int problem = errno;
  ::close(fd);
  errno = problem;
  return -1;
}

/// IPv6 before IPv4 where all interfaces are meant: it takes connections of both.
int listen_on_any(const addrinfo* addresses) {
  int problem = EADDRNOTAVAIL;
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
      if (address->ai_family != family) continue;
      const int fd = listen_on(*address);
      if (fd >= 0) return fd;
      if (problem != EADDRINUSE) problem = errno;
    }
  }
  errno = problem;
  return -1;
}

int port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

StoreSocket::StoreSocket(const std::string& address, int port) {
  fd_ = listen_on_any(resolve(address.c_str(), port).get());
  if (fd_ < 0 && errno == EADDRNOTAVAIL) fd_ = listen_on_any(resolve(nullptr, port).get());
  if (fd_ < 0 && errno == EADDRINUSE) {
    const std::string owner = listener_of(port);
    throw Error(Exit::kResource,
                "port {} on {} is taken{}; end that program or choose another "
                "--master-port",
                port, address, owner.empty() ? "" : " by " + owner);
  }
  if (fd_ < 0) {
    throw Error(Exit::kResource, "cannot listen on {} port {}: {}", address, port,
                errno_text(errno));
  }
  port_ = port_of(fd_);
}

StoreSocket::~StoreSocket() { ::close(fd_); }

}  // namespace brim::launch
