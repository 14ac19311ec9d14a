#include "framework/distributed/watchdog.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/torchelastic.h"

namespace brim::distributed {
namespace {

using std::chrono::milliseconds;

constexpr const char* kVerdict = "brim/verdict";

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// A farewell starts with the status, so that a rank that ended because of another one is told from
/// the one that began.
bool is_secondary(const std::string& farewell) {
  return farewell.starts_with(std::to_string(static_cast<int>(Exit::kDistributed)) + " ");
}

}  // namespace

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world,
                   milliseconds limit)
    : store_(std::move(store)),
      rank_(rank),
      world_(world),
      limit_(limit * 8 / 10),  // found within the limit, with time to say so
      beat_(std::clamp(limit / 10, milliseconds(20), milliseconds(1000))),
      entered_(Clock::now()),
      heard_at_(Clock::now()) {
  store_->setTimeout(limit_);
  // Every key is there before anybody asks: an answer then never waits for a rank.
  store_->set(key("beat", rank_), bytes("0 0 0 "));
  store_->set(key("farewell", rank_), bytes(""));
  if (rank_ == 0) store_->set(kVerdict, bytes(""));
  store_->wait({kVerdict, key("beat", (rank_ + 1) % world_)}, limit);
  answered_at_ = Clock::now().time_since_epoch().count();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  guard_ = std::jthread([this](const std::stop_token& stop) { guard(stop); });
}

Watchdog::~Watchdog() {
  close();
  thread_.request_stop();
  guard_.request_stop();
}

std::string_view Watchdog::enter(std::string_view what) {
  const std::lock_guard lock(mutex_);
  ++collectives_;
  entered_ = Clock::now();
  return std::exchange(what_, what);
}

void Watchdog::leave(std::string_view outer) {
  const std::lock_guard lock(mutex_);
  what_ = outer;
}

std::string Watchdog::key(std::string_view kind, int64_t rank) const {
  return fmt::format("brim/{}/{}", kind, rank);
}

Watchdog::Beat Watchdog::own() {
  const std::lock_guard lock(mutex_);
  return {.count = 0, .step = step_, .collectives = collectives_, .what = std::string(what_)};
}

void Watchdog::send(int64_t count) {
  const Beat beat = own();
  const std::lock_guard lock(store_mutex_);
  store_->set(key("beat", rank_),
              bytes(fmt::format("{} {} {} {}", count, beat.step, beat.collectives, beat.what)));
}

std::optional<Watchdog::Beat> Watchdog::read(int64_t rank) {
  std::vector<std::vector<uint8_t>> values;
  {
    const std::lock_guard lock(store_mutex_);
    values = store_->multiGet({key("beat", rank)});
  }
  Beat beat;
  std::istringstream words(text(values.at(0)));
  if (!(words >> beat.count >> beat.step >> beat.collectives)) return std::nullopt;
  std::getline(words >> std::ws, beat.what);
  return beat;
}

std::string Watchdog::describe(int64_t rank, const Beat& beat) const {
  return fmt::format("rank {} (after step {}{})", rank, beat.step,
                     beat.what.empty() ? std::string() : ", in " + beat.what);
}

void Watchdog::run(const std::stop_token& stop) {
  for (int64_t count = 1; !stop.stop_requested(); ++count) {
    try {
      send(count);
      if (const auto verdict = judge()) end_process(*verdict, /*tells_others=*/true);
    } catch (const std::exception&) {
      if (is_closing_ || stop.stop_requested()) return;
      end_process(store_is_silent(), /*tells_others=*/false);
    }
    answered_at_ = Clock::now().time_since_epoch().count();
    pause(stop);
  }
}

void Watchdog::guard(const std::stop_token& stop) {
  for (; !stop.stop_requested(); pause(stop)) {
    const Clock::time_point answered{Clock::duration(answered_at_.load())};
    if (!is_closing_ && Clock::now() - answered > limit_) {
      end_process(store_is_silent(), /*tells_others=*/false);
    }
  }
}

void Watchdog::pause(const std::stop_token& stop) {
  std::unique_lock lock(sleep_mutex_);
  wake_.wait_for(lock, stop, beat_, [] { return false; });
}

std::string Watchdog::store_is_silent() const {
  return fmt::format(
      "the store, which rank 0 or the launcher serves, does not answer: that process is stopped or "
      "gone, or the network to it is (rank {}, after step {})",
      rank_, step_.load());
}

std::optional<std::string> Watchdog::judge() {
  std::string verdict;
  {
    const std::lock_guard lock(store_mutex_);
    verdict = text(store_->multiGet({kVerdict}).at(0));
  }
  if (is_closing_) return std::nullopt;
  if (!verdict.empty()) end_process(verdict, /*tells_others=*/false);

  const int64_t neighbour = (rank_ + 1) % world_;
  const std::optional<Beat> beat = read(neighbour);
  const auto now = Clock::now();
  if (!heard_ || (beat && beat->count != heard_->count)) {
    heard_ = beat;
    heard_at_ = now;
  } else if (now - heard_at_ > limit_) {
    const std::string waiting_in = own().what;
    return fmt::format(
        "{} has been silent for {:.1f} s: it is stopped or gone, or the network to it is{}",
        describe(neighbour, *heard_), seconds(now - heard_at_),
        waiting_in.empty() ? "" : "; the others wait in " + waiting_in);
  }
  return find_missing_in_collective();
}

std::optional<std::string> Watchdog::find_missing_in_collective() {
  const Beat mine = own();
  if (mine.what.empty()) return std::nullopt;
  Clock::duration waited;
  {
    const std::lock_guard lock(mutex_);
    waited = Clock::now() - entered_;
  }
  if (waited < limit_) return std::nullopt;
  std::string missing;
  for (int64_t rank = 0; rank < world_; ++rank) {
    const std::optional<Beat> beat = rank == rank_ ? mine : read(rank);
    if (beat && beat->collectives >= mine.collectives) continue;
    missing += (missing.empty() ? "" : ", ") + describe(rank, beat.value_or(Beat{}));
  }
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
    const std::vector<int64_t> silent = silent_ranks();
    std::string others;
    for (const int64_t rank : silent) {
      std::string farewell;
      {
        const std::lock_guard lock(store_mutex_);
        farewell = text(store_->multiGet({key("farewell", rank)}).at(0));
      }
      if (is_secondary(farewell) && silent.size() > 1) continue;
      others += others.empty() ? "" : "; ";
      others += describe(rank, read(rank).value_or(Beat{}));
      others += farewell.empty() ? " is gone" : " ended with status " + farewell;
    }
    if (!others.empty()) return fmt::format("{}; the others were in {}", others, where);
    return fmt::format("{} failed, though every rank is alive: {}", where, error);
  } catch (const std::exception&) {
    return fmt::format(
        "{} failed, and the store, which rank 0 or the launcher serves, does not answer: that "
        "process is gone, or the network to it is ({})",
        where, error);
  }
}

void Watchdog::say_farewell(const std::string& why) {
  try {
    const std::lock_guard lock(store_mutex_);
    store_->set(key("farewell", rank_), bytes(why));
  } catch (const std::exception&) {
    // Nobody is left to tell.
  }
}

void Watchdog::end_process(const std::string& verdict, bool tells_others) {
  if (tells_others) {
    try {
      const std::lock_guard lock(store_mutex_);
      store_->compareSet(kVerdict, bytes(""), bytes(verdict));
    } catch (const std::exception&) {
      // The store is what is gone; the others find out by themselves.
    }
  }
  const Error error(Exit::kDistributed, verdict);
  print_error(error);
  write_torchelastic_error(fmt::format("error[distributed]: {}", verdict),
                           static_cast<int>(error.status()));
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(Exit::kDistributed));
}

}  // namespace brim::distributed
