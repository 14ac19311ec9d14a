// How rank 0 opens the socket that the store is served on, and how the others learn its address
// where no launcher says it: from a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/base/listener.h"

namespace brim::distributed {

/// Rank 0's socket, as brim::listen_on() opens it. Throws Error(kDistributed) where the port is
/// taken or the address isn't this machine's.
Listener listen_for_ranks(const std::string& address, uint16_t port);

struct Address {
  std::string host;
  uint16_t port = 0;
};

/// Writes rank 0's address for the others: whole or not at all. A file in a folder under /tmp is
/// made in one that only this user can write to. Throws Error(kDistributed).
void write_rendezvous_file(const std::filesystem::path& file, const Address& address);

/// Waits for the file that a living rank 0 has written. One that a process of this machine left
/// behind when it died is no such file. Throws Error(kDistributed) after `limit`.
Address read_rendezvous_file(const std::filesystem::path& file, std::chrono::milliseconds limit);

/// Waits until a server listens at the address, which may get its name and its listener late.
/// Returns what stood against it after `limit`; empty: nothing.
std::string wait_for_listener(const Address& address, std::chrono::milliseconds limit);

/// When a process of this machine started, in the kernel's ticks; nullopt where there is none.
std::optional<uint64_t> start_time(int64_t process);

/// The address by which `host` would be reached from here: that of the right network interface.
/// Empty where there is no way.
std::string address_towards(const std::string& host, uint16_t port);
/// That of the interface with the default route; empty where there is none.
std::string default_address();

}  // namespace brim::distributed
