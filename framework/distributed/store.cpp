#include "framework/distributed/store.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <variant>
#include <vector>

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

/// On the interface that MASTER_ADDR names. On all only where other machines come in by none that
/// it names here: it is a service's, say, or is_known_here_only().
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

/// Null where what listens there is no store.
c10::intrusive_ptr<c10d::Store> connect(const Address& address,
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
    return nullptr;
  }
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

/// The number of rank 0's start, which all go by: launchers of several machines may have started
/// their ranks again unequally often. torchrun's agents agree on one.
std::string agreed_start(c10d::Store& store, const Ranks& ranks, bool is_server) {
  constexpr const char* kStart = "brim/start";
  const std::string own = std::to_string(ranks.restarts);
  if (ranks.rendezvous.kind == RendezvousKind::kAgent) return own;
  if (is_server) store.set(kStart, bytes_of(own));
  const std::vector<uint8_t> found = store.get(kStart);
  return {found.begin(), found.end()};
}

void require_same_world(c10d::Store& store, const Ranks& ranks) {
  const std::vector<uint8_t> ours = bytes_of(std::to_string(ranks.world));
  const std::vector<uint8_t> found = store.compareSet("brim/world", {}, ours);
  if (found == ours) return;
  throw Error(Exit::kDistributed,
              "rank {} was told that there are {} ranks, another one that there are {}: do two "
              "launches use the same MASTER_ADDR and MASTER_PORT?",
              ranks.rank, ranks.world, std::string(found.begin(), found.end()));
}

bool is_first_of_its_rank(c10d::Store& store, const Ranks& ranks) {
  return store.add(fmt::format("brim/is_here/{}", ranks.rank), 1) == 1;
}

Error claimed_twice(const Ranks& ranks) {
  return {Exit::kDistributed,
          "two processes claim to be rank {}: do two launches use the same MASTER_ADDR and "
          "MASTER_PORT, or two machines the same --node-rank?",
          ranks.rank};
}

Error ended(const Ranks& ranks) {
  return {Exit::kDistributed,
          "{}, which serves the store, does not answer: it ended before rank {} had joined, "
          "and its own message says why",
          server_of(ranks), ranks.rank};
}

/// One try: the store, or what stood against it.
std::variant<OpenStore, Error> join(const Ranks& ranks, const Address& address,
                                    const std::optional<Listener>& listener, milliseconds limit) {
  if (!listener) {  // LibTorch's own waiting takes the limit once for each kind of address
    const std::string obstacle = wait_for_listener(address, limit);
    if (!obstacle.empty()) throw unreachable(ranks, address, limit, obstacle);
  }
  const Deadline deadline(limit, unreachable(ranks, address, limit, kNoStore).what());
  const auto store = connect(address, listener, limit);
  if (store == nullptr) return unreachable(ranks, address, limit, kNoStore);
  try {
    const auto own = c10::make_intrusive<c10d::PrefixStore>(
        "brim-attempt-" + agreed_start(*store, ranks, listener.has_value()), store);
    require_same_world(*own, ranks);
    if (!is_first_of_its_rank(*own, ranks)) return claimed_twice(ranks);
    return OpenStore{own, own->clone(), ranks.one_machine() ? kLoopback : own_address(address)};
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    return ended(ranks);
  }
}

}  // namespace

OpenStore open_store(const Ranks& ranks, milliseconds limit) {
  silence_warnings();
  const std::optional<Listener> listener = listen(ranks);
  Address address = {ranks.rendezvous.address, ranks.rendezvous.port};
  if (ranks.rendezvous.kind == RendezvousKind::kFile)
    address = read_rendezvous_file(ranks.rendezvous.file, limit);
  // Where this machine's launcher was the first to start its ranks again, the store may be the one
  // of the start before, which has this rank already and is about to end.
  const bool may_be_old = ranks.restarts > 0 && !listener && !ranks.one_machine();
  constexpr milliseconds kPause(100);
  const auto end = std::chrono::steady_clock::now() + limit;
  for (milliseconds left = limit;; std::this_thread::sleep_for(kPause)) {
    const auto outcome = join(ranks, address, listener, left);
    if (const auto* open = std::get_if<OpenStore>(&outcome)) return *open;
    left = std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    if (!may_be_old || left <= kPause) throw std::get<Error>(outcome);
  }
}

}  // namespace brim::distributed
