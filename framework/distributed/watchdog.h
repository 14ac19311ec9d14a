// Finds the rank that has stopped. Every rank's heartbeat, with its step and the collective that it
// is in, goes into the store by a thread of its own; each rank listens to the next one's, and to
// how long it waits itself. A collective's own error says only that a rank is missing, and a rank
// that is stopped says nothing at all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace brim::distributed {

/// How a rank is in a collective: it waits for all ranks; for a message, of which ranks have
/// different numbers; or it computes, too, as in a backward pass that sums gradients.
enum class Inside { kCollective, kMessage, kWork };

class Watchdog {
 public:
  /// Waits for the other ranks, then starts the thread; `store` is a connection of its own. A rank
  /// that is silent for `limit`, or keeps the others waiting that long in a collective, ends every
  /// rank with status 6 and a message that names it; 4 s of silence are enough once a stop was
  /// asked for, and 15 s in which all ranks only wait. A stop that one rank is asked for is asked
  /// of all. `server` is who serves the store: "rank 0", or "the launcher". Throws
  /// Error(kDistributed) naming the ranks that don't come within `limit`.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world,
           std::chrono::milliseconds limit, std::string server);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Called by the thread that drives the step. `what` names a collective for people ("the sum of
  /// gradients") and outlives it.
  void step(int64_t finished_steps) { step_ = finished_steps; }
  struct Place {
    std::string_view what;
    int64_t number;  // of the collective, from 1 on; a message has that of the last one
  };
  /// Collectives may lie inside each other: leave() takes what enter() gave. `started` is the
  /// number of one that was started earlier and is waited for now; 0: this one is new.
  Place enter(std::string_view what, Inside how = Inside::kCollective, int64_t started = 0);
  void leave(const Place& outer);
  /// The number of the collective that this rank is in.
  int64_t number() const;

  /// After a collective failed with `error`: finds out who is missing, which takes a few beats,
  /// tells the others and gives the message that says so. This rank must end then.
  std::string explain(const std::string& error);

  /// Tells the others why this rank ends, so that they end too and say so.
  void report_failure(int status, const std::string& why);

  /// From here on ranks may leave: no one's silence is a fault. Call before the last barrier.
  void close() { is_closing_ = true; }

 private:
  struct Beat {
    int64_t count = 0;
    int64_t step = 0;
    int64_t collectives = 0;  // started so far
    int64_t waiting_ms = 0;   // that it only waits in the last one
    std::string what;         // the collective or message that it is in; empty: none
  };
  using Clock = std::chrono::steady_clock;

  void join_until(std::chrono::milliseconds limit);
  std::string ranks_missing_at_rendezvous();
  void run(const std::stop_token& stop);
  void guard(const std::stop_token& stop);
  void pause(const std::stop_token& stop);
  void send(int64_t count);
  void share_stop();
  std::chrono::milliseconds silence_limit() const;
  Beat own();
  std::optional<Beat> read(int64_t rank);
  std::optional<std::string> judge();
  std::optional<std::string> find_missing_in_collective();
  std::optional<std::string> find_deadlock();
  std::vector<int64_t> silent_ranks();
  std::string describe(int64_t rank, const Beat& beat) const;
  std::string key(std::string_view kind, int64_t rank) const;
  std::string find_failed_ranks(const std::string& where, const std::string& error);
  std::string read_verdict();
  std::string publish(const std::string& verdict);
  void wait_for_readers() const;
  std::string store_is_silent() const;
  [[noreturn]] void end_for(const std::string& verdict);

  c10::intrusive_ptr<c10d::Store> store_;  // guarded by store_mutex_
  std::mutex store_mutex_;
  const int64_t rank_, world_;
  const std::string server_;  // of the store
  const std::chrono::milliseconds limit_, beat_;

  std::atomic<int64_t> step_ = 0;
  std::atomic<bool> is_closing_ = false;
  mutable std::mutex mutex_;  // guards the four below
  int64_t collectives_ = 0;
  Place place_ = {};  // the collective or message that it is in; no `what`: none
  Inside how_ = Inside::kCollective;
  Clock::time_point entered_;

  bool has_told_stop_ = false;  // by the thread only, like the two below
  std::optional<Beat> heard_;   // the neighbour's
  Clock::time_point heard_at_;
  std::atomic<Clock::rep> answered_at_;  // when the store last did, since the clock's epoch
  std::mutex sleep_mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
  std::jthread guard_;  // a store whose process is stopped never answers, whatever its time limit
};

}  // namespace brim::distributed
