#include "framework/distributed/store.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "framework/base/descriptor.h"
#include "framework/base/error.h"
#include "framework/base/host.h"
#include "framework/distributed/deadline.h"
#include "framework/distributed/rendezvous.h"

namespace brim::distributed {
namespace {

using RendezvousKind = RendezvousEndpoint::Kind;
using std::chrono::milliseconds;

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kNoStore = "what listens there does not answer as a store does";

/// LibTorch warns of every connection that is lost, with its C++ stack; the watchdog says in words
/// which rank is gone. A TORCH_CPP_LOG_LEVEL of the user's stands.
void silence_warnings() {
  c10::initLogging();
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

bool is_own_address(const std::string& address) {
  const Descriptor listener(listen_on(address, 0).fd);
  return listener.get() >= 0;
}

/// On the interface that MASTER_ADDR names. On all only where other machines come in by none that it
/// names here: it is a service's, say, or is_known_here_only().
Listener listen_at(const RendezvousEndpoint& rendezvous, bool one_machine) {
  const std::string& address = rendezvous.address;
  const bool is_named = one_machine || (is_own_address(address) && !is_known_here_only(address));
  return listen_for_ranks(is_named ? rendezvous.address : "", rendezvous.port);
}

/// What rank 0 opens for the others; nullopt where the launcher serves the store.
std::optional<Listener> listen(const Ranks& ranks) {
  const RendezvousEndpoint& rendezvous = ranks.rendezvous;
  if (ranks.rank != 0) return std::nullopt;
  switch (rendezvous.kind) {
    case RendezvousKind::kSocket:
      return Listener{.fd = rendezvous.socket, .port = rendezvous.port};
    case RendezvousKind::kListen:
      return listen_at(rendezvous, ranks.one_machine());
    case RendezvousKind::kFile: {
      const Listener listener = listen_for_ranks(ranks.one_machine() ? kLoopback : "", 0);
      write_rendezvous_file(rendezvous.file, {ranks.one_machine() ? kLoopback : host_name(),
                                              static_cast<uint16_t>(listener.port)});
      return listener;
    }
    case RendezvousKind::kAgent:
    case RendezvousKind::kNone:
      break;
  }
  return std::nullopt;
}

/// Of this rank, for those on other machines.
std::string own_address(const Address& store) {
  const std::string found = is_known_here_only(store.host) ? default_address() : "";
  return found.empty() ? address_towards(store.host, store.port) : found;
}

const char* server_of(const Ranks& ranks) {
  return ranks.rendezvous.kind == RendezvousKind::kAgent ? "the launcher" : "rank 0";
}

Error unreachable(const Ranks& ranks, const Address& address, milliseconds limit,
                  const std::string& obstacle) {
  return {Exit::kDistributed,
          "rank {} could not reach {} at {}:{} within {} s ({}): is it running, is that address "
          "the right one (MASTER_ADDR, MASTER_PORT), and does a firewall let it through?",
          ranks.rank,
          server_of(ranks),
          address.host,
          address.port,
          limit.count() / 1000,
          obstacle};
}

c10::intrusive_ptr<c10d::Store> connect(const Ranks& ranks, const Address& address,
                                        const std::optional<Listener>& listener,
                                        milliseconds limit) {
  c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = listener.has_value();
  options.waitWorkers = false;
  options.timeout = limit;
  if (listener) options.masterListenFd = listener->fd;
  try {
    return c10::make_intrusive<c10d::TCPStore>(address.host, options);
  } catch (const std::exception&) {
    throw unreachable(ranks, address, limit, kNoStore);
  }
}

void check_world(c10d::Store& store, const Ranks& ranks) {
  const std::string ours = std::to_string(ranks.world);
  const std::vector<uint8_t> bytes(ours.begin(), ours.end());
  const std::vector<uint8_t> found = store.compareSet("brim/world", {}, bytes);
  if (found != bytes) {
    throw Error(Exit::kDistributed,
                "rank {} was told that there are {} ranks, another one that there are {}: do two "
                "launches use the same MASTER_ADDR and MASTER_PORT?",
                ranks.rank, ours, std::string(found.begin(), found.end()));
  }
  if (store.add(fmt::format("brim/is_here/{}", ranks.rank), 1) > 1) {
    throw Error(Exit::kDistributed,
                "two processes claim to be rank {}: do two launches use the same MASTER_ADDR and "
                "MASTER_PORT, or two machines the same --node-rank?",
                ranks.rank);
  }
}

}  // namespace

OpenStore open_store(const Ranks& ranks, milliseconds limit) {
  silence_warnings();
  const std::optional<Listener> listener = listen(ranks);
  Address address = {ranks.rendezvous.address, ranks.rendezvous.port};
  if (ranks.rendezvous.kind == RendezvousKind::kFile)
    address = read_rendezvous_file(ranks.rendezvous.file, limit);
  if (!listener) {  // LibTorch's own waiting takes the limit once for each kind of address
    const std::string obstacle = wait_for_listener(address, limit);
    if (!obstacle.empty()) throw unreachable(ranks, address, limit, obstacle);
  }
  const Deadline deadline(limit, unreachable(ranks, address, limit, kNoStore).what());
  const auto store = connect(ranks, address, listener, limit);
  const auto own =
      c10::make_intrusive<c10d::PrefixStore>(fmt::format("brim-attempt-{}", ranks.restarts), store);
  try {
    check_world(*own, ranks);
    return {own, own->clone(), ranks.one_machine() ? kLoopback : own_address(address)};
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw Error(Exit::kDistributed,
                "{}, which serves the store, does not answer: it ended before rank {} had joined, "
                "and its own message says why",
                server_of(ranks), ranks.rank);
  }
}

}  // namespace brim::distributed
