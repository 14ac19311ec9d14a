#include "framework/distributed/watchdog.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/stop.h"
#include "framework/distributed/deadline.h"

namespace brim::distributed {
namespace {

using std::chrono::milliseconds;

constexpr const char* kFirstRank = "rank 0";
constexpr const char* kVerdict = "brim/verdict";  // why all end, by the first rank that knows
constexpr const char* kArrived = "brim/arrived";  // how many ranks have
constexpr const char* kStop = "brim/stop";        // how many ranks were asked to
constexpr milliseconds kStopSilence(4000);        // of a rank, once a stop was asked for
constexpr int64_t kStopWait_ms = 15000;           // of all ranks, once a stop was asked for
constexpr int64_t kMaxNames = 8;                  // of ranks in a message

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// Whether a rank ended because of another one.
bool is_secondary(int status) { return status == static_cast<int>(Exit::kDistributed); }

}  // namespace

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world,
                   milliseconds limit, std::string server)
    : store_(std::move(store)),
      rank_(rank),
      world_(world),
      server_(std::move(server)),
      limit_(limit * 8 / 10),  // found within the limit, with time to say so
      beat_(std::clamp(limit / 10, milliseconds(20), milliseconds(500))),
      entered_(Clock::now()),
      heard_at_(Clock::now()) {
  store_->setTimeout(limit_);
  answered_at_ = Clock::now().time_since_epoch().count();
  guard_ = std::jthread([this](const std::stop_token& stop) { guard(stop); });
  try {
    join_until(limit);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw Error(Exit::kDistributed, store_is_silent());
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Watchdog::~Watchdog() {
  close();
  thread_.request_stop();
  guard_.request_stop();
}

/// Every key is there before a rank asks for it: an answer then never waits for a rank.
void Watchdog::join_until(milliseconds limit) {
  const auto end = Clock::now() + limit;
  store_->set(key("beat", rank_), bytes("0 0 0 0 "));
  store_->set(key("failure", rank_), bytes(""));
  publish("");
  store_->add(kArrived, 1);
  milliseconds pause(1);
  while (store_->add(kArrived, 0) < world_) {
    std::string verdict = read_verdict();
    answered_at_ = Clock::now().time_since_epoch().count();
    if (verdict.empty() && Clock::now() > end) {
      verdict =
          publish(fmt::format("{} did not reach the rendezvous within {:.0f} s; rank {} of {} "
                              "did: was it started, and with the same number of ranks?",
                              ranks_missing_at_rendezvous(), seconds(limit), rank_, world_));
    }
    if (!verdict.empty()) {
      wait_for_readers();
      throw Error(Exit::kDistributed, verdict);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min({pause * 2, beat_, milliseconds(100)});
  }
}

std::string Watchdog::ranks_missing_at_rendezvous() {
  std::string names;
  int count = 0;
  for (int64_t rank = 0; rank < world_; ++rank) {
    if (store_->check({key("failure", rank)})) continue;
    if (++count <= kMaxNames) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
  }
  if (count > kMaxNames) names += fmt::format(" and {} more", count - kMaxNames);
  return (count == 1 ? "rank " : "ranks ") + names;
}

Watchdog::Place Watchdog::enter(std::string_view what, Inside how, int64_t started) {
  const std::lock_guard lock(mutex_);
  if (started == 0 && how != Inside::kMessage) collectives_ += 1;
  how_ = how;
  entered_ = Clock::now();
  return std::exchange(place_, {what, started == 0 ? collectives_ : started});
}

void Watchdog::leave(const Place& outer) {
  const std::lock_guard lock(mutex_);
  place_ = outer;
  how_ = Inside::kWork;  // what has others inside
}

int64_t Watchdog::number() const {
  const std::lock_guard lock(mutex_);
  return place_.number;
}

std::string Watchdog::key(std::string_view kind, int64_t rank) const {
  return fmt::format("brim/{}/{}", kind, rank);
}

Watchdog::Beat Watchdog::own() {
  const std::lock_guard lock(mutex_);
  const bool only_waits = !place_.what.empty() && how_ != Inside::kWork;
  const auto waiting = std::chrono::duration_cast<milliseconds>(Clock::now() - entered_);
  return {.count = 0,
          .step = step_,
          .collectives = collectives_,
          .waiting_ms = only_waits ? waiting.count() : 0,
          .what = std::string(place_.what)};
}

void Watchdog::send(int64_t count) {
  const Beat beat = own();
  const std::lock_guard lock(store_mutex_);
  store_->set(key("beat", rank_), bytes(fmt::format("{} {} {} {} {}", count, beat.step,
                                                    beat.collectives, beat.waiting_ms, beat.what)));
}

std::optional<Watchdog::Beat> Watchdog::read(int64_t rank) {
  std::vector<std::vector<uint8_t>> values;
  {
    const std::lock_guard lock(store_mutex_);
    values = store_->multiGet({key("beat", rank)});
  }
  Beat beat;
  std::istringstream words(text(values.at(0)));
  if (!(words >> beat.count >> beat.step >> beat.collectives >> beat.waiting_ms)) {
    return std::nullopt;
  }
  std::getline(words >> std::ws, beat.what);
  return beat;
}

std::string Watchdog::describe(int64_t rank, const Beat& beat) const {
  return fmt::format("rank {} (last heartbeat after step {}{})", rank, beat.step,
                     beat.what.empty() ? std::string() : ", in " + beat.what);
}

/// One rank that is asked to stop is all of them.
void Watchdog::share_stop() {
  const bool tells = stop_requested() && !std::exchange(has_told_stop_, true);
  const std::lock_guard lock(store_mutex_);
  if (store_->add(kStop, tells ? 1 : 0) > 0) request_stop();
}

/// Who asks for a stop can't wait for as long as a run may.
milliseconds Watchdog::silence_limit() const {
  return stop_requested() ? std::min(limit_, kStopSilence) : limit_;
}

void Watchdog::run(const std::stop_token& stop) {
  for (int64_t count = 1; !stop.stop_requested(); ++count) {
    try {
      send(count);
      share_stop();
      if (const auto verdict = judge()) end_for(publish(*verdict));
    } catch (const std::exception&) {
      if (is_closing_ || stop.stop_requested()) return;
      end_for(store_is_silent());
    }
    answered_at_ = Clock::now().time_since_epoch().count();
    pause(stop);
  }
}

void Watchdog::guard(const std::stop_token& stop) {
  for (; !stop.stop_requested(); pause(stop)) {
    const Clock::time_point answered{Clock::duration(answered_at_.load())};
    if (!is_closing_ && Clock::now() - answered > silence_limit()) {
      end_for(store_is_silent());
    }
  }
}

void Watchdog::pause(const std::stop_token& stop) {
  std::unique_lock lock(sleep_mutex_);
  wake_.wait_for(lock, stop, beat_, [] { return false; });
}

std::string Watchdog::store_is_silent() const {
  return fmt::format(
      "{}, which serves the store, does not answer: it is stopped or gone, or the network to it is "
      "(rank {}, after step {})",
      server_, rank_, step_.load());
}

std::string Watchdog::read_verdict() {
  const std::lock_guard lock(store_mutex_);
  return text(store_->multiGet({kVerdict}).at(0));
}

/// Tells the others to end because of `verdict`; an earlier one stands. Returns the one that does.
std::string Watchdog::publish(const std::string& verdict) {
  const std::lock_guard lock(store_mutex_);
  return text(store_->compareSet(kVerdict, {}, bytes(verdict)));
}

/// The store must not end before every rank has read the verdict, which it does at each beat.
void Watchdog::wait_for_readers() const {
  if (rank_ == 0 && server_ == kFirstRank) std::this_thread::sleep_for(beat_ * 2);
}

std::optional<std::string> Watchdog::judge() {
  std::string verdict = read_verdict();
  if (is_closing_) return std::nullopt;
  if (!verdict.empty()) return verdict;

  const int64_t neighbour = (rank_ + 1) % world_;
  const std::optional<Beat> beat = read(neighbour);
  const auto now = Clock::now();
  if (!heard_ || (beat && beat->count != heard_->count)) {
    heard_ = beat;
    heard_at_ = now;
  } else if (now - heard_at_ > silence_limit()) {
    const std::string waiting_in = own().what;
    return fmt::format(
        "{} has sent no heartbeat for {:.1f} s: it is stopped or gone, or the network to it is{}",
        describe(neighbour, *heard_), seconds(now - heard_at_),
        waiting_in.empty() ? "" : "; the others wait in " + waiting_in);
  }
  // Its silence says more than that it is late in a collective, and soon lasts as long.
  const bool is_neighbour_silent = now - heard_at_ > beat_ * 4;
  if (is_neighbour_silent) return std::nullopt;
  return stop_requested() ? find_deadlock() : find_missing_in_collective();
}

/// Ranks that wait for each other never look for the stop.
std::optional<std::string> Watchdog::find_deadlock() {
  if (own().waiting_ms < kStopWait_ms) return find_missing_in_collective();
  std::string ranks;
  for (int64_t rank = 0; rank < world_; ++rank) {
    const Beat beat = rank == rank_ ? own() : read(rank).value_or(Beat{});
    if (beat.waiting_ms < kStopWait_ms) return find_missing_in_collective();
    if (rank < kMaxNames) ranks += (rank == 0 ? "" : ", ") + describe(rank, beat);
  }
  return fmt::format("a stop was asked for, and all ranks only wait, for {} s: {}{}",
                     kStopWait_ms / 1000, ranks, world_ > kMaxNames ? ", …" : "");
}

std::optional<std::string> Watchdog::find_missing_in_collective() {
  const Beat mine = own();
  if (mine.what.empty()) return std::nullopt;
  Clock::duration waited;
  bool is_message = false;
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    waited = Clock::now() - entered_;
    is_message = how_ == Inside::kMessage;
    number = place_.number;
  }
  if (waited < limit_) return std::nullopt;
  // A rank that is late and waits itself, waits for another one that does not.
  std::string waiting, busy;
  for (int64_t rank = 0; rank < world_; ++rank) {
    const Beat beat = rank == rank_ ? mine : read(rank).value_or(Beat{});
    const bool is_busy = beat.what.empty();
    if (is_message ? !is_busy : beat.collectives >= number) continue;
    std::string& names = is_busy ? busy : waiting;
    names += (names.empty() ? "" : ", ") + describe(rank, beat);
  }
  const std::string& missing = busy.empty() ? waiting : busy;
  if (missing.empty()) {
    return fmt::format(
        "{} has not finished for {:.1f} s though all ranks are in it: the network between them is "
        "cut or very slow (rank {}, after step {})",
        mine.what, seconds(waited), rank_, mine.step);
  }
  return fmt::format("{} kept the others waiting for {:.1f} s in {}", missing, seconds(waited),
                     mine.what);
}

std::vector<int64_t> Watchdog::silent_ranks() {
  std::vector<int64_t> before(static_cast<size_t>(world_));
  for (int64_t rank = 0; rank < world_; ++rank) {
    before[static_cast<size_t>(rank)] = read(rank).value_or(Beat{}).count;
  }
  std::this_thread::sleep_for(beat_ * 5 / 2);
  std::vector<int64_t> silent;
  for (int64_t rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    if (read(rank).value_or(Beat{}).count == before[static_cast<size_t>(rank)]) {
      silent.push_back(rank);
    }
  }
  return silent;
}

std::string Watchdog::explain(const std::string& error) {
  const std::string where = own().what;
  try {
    std::string verdict = read_verdict();
    if (verdict.empty()) verdict = publish(find_failed_ranks(where, error));
    is_closing_ = true;
    wait_for_readers();
    return verdict;
  } catch (const std::exception&) {
    return fmt::format("{}; {} failed with: {}", store_is_silent(), where, error);
  }
}

std::string Watchdog::find_failed_ranks(const std::string& where, const std::string& error) {
  const std::vector<int64_t> silent = silent_ranks();
  std::string gone;
  for (const int64_t rank : silent) {
    std::string report;
    {
      const std::lock_guard lock(store_mutex_);
      report = text(store_->multiGet({key("failure", rank)}).at(0));
    }
    if (is_secondary(std::atoi(report.c_str())) && silent.size() > 1) continue;
    gone += gone.empty() ? "" : "; ";
    gone += describe(rank, read(rank).value_or(Beat{}));
    gone += report.empty() ? " is gone" : " ended with status " + report;
  }
  if (!gone.empty()) return fmt::format("{}; the others were in {}", gone, where);
  return fmt::format("{} failed on rank {}, though every rank is alive: {}", where, rank_, error);
}

void Watchdog::report_failure(int status, const std::string& why) {
  const bool tells_others = !is_closing_.exchange(true) && !is_secondary(status);
  const std::string report = fmt::format("{} ({})", status, why);
  try {
    {
      const std::lock_guard lock(store_mutex_);
      store_->set(key("failure", rank_), bytes(report));
    }
    if (!tells_others) return;
    publish(
        fmt::format("rank {} (after step {}) ended with status {}", rank_, step_.load(), report));
    wait_for_readers();
  } catch (const std::exception&) {
    // No one is left to tell.
  }
}

void Watchdog::end_for(const std::string& verdict) {
  wait_for_readers();
  end_process(Error(Exit::kDistributed, verdict));
}

}  // namespace brim::distributed
