// Where ranks meet: the key-value store that the first rank, or the launcher, serves.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "framework/distributed/ranks.h"

namespace brim::distributed {

struct OpenStore {
  c10::intrusive_ptr<c10d::Store> store;      // this run's keys only
  c10::intrusive_ptr<c10d::Store> heartbeat;  // the same by a connection of its own
  std::string address;  // of this machine, by which the ranks reach each other
};

/// Serves the store (rank 0, where the launcher doesn't) and connects to it. Throws
/// Error(kDistributed) where that fails within `limit`, where ranks disagree on how many they are,
/// and where two of them claim to be the same one. A rank of several machines that its launcher has
/// started again waits for the store of rank 0's next start where the one before is still there.
OpenStore open_store(const Ranks& ranks, std::chrono::milliseconds limit);

}  // namespace brim::distributed
