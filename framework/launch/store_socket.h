// The socket that rank 0's store listens on, opened by the launcher: no port is picked and let go.
#pragma once

#include <string>

namespace brim::launch {

class StoreSocket {
 public:
  /// Binds and listens. Port 0 takes a free one. Where `address` belongs to no interface of this
  /// machine (a NAT's, a service's), it listens on all. Throws Error(kResource) for a port that is
  /// taken, naming who holds it, and Error(kRecipe) for a name that means no address.
  StoreSocket(const std::string& address, int port);
  ~StoreSocket();
  StoreSocket(const StoreSocket&) = delete;
  StoreSocket& operator=(const StoreSocket&) = delete;

  int fd() const { return fd_; }  // closed on exec, unless a worker's start says otherwise
  int port() const { return port_; }

 private:
  int fd_ = -1;
  int port_ = 0;
};

}  // namespace brim::launch
