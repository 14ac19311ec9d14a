#include "framework/base/stop.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "framework/base/error.h"

namespace brim {
namespace {

constexpr unsigned kUnsavedLimit_s = 3;

// Lock-free, as a signal handler needs them.
std::atomic<bool> is_requested = false;
std::atomic<int64_t> first_ns = 0;  // when a signal first asked for a stop, SIGHUP apart
std::atomic<int> unsaved = 0;       // objects of NothingToSave
std::atomic<bool> speaks = true;    // of several ranks the first, or their launcher

void write_note(std::string_view note) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, note.data(), note.size());
}

// A terminal that closes sends SIGHUP twice, and service managers send it beside SIGTERM: it is
// never the second signal.
void on_signal(int signal) {
  if (signal != SIGHUP) {
    const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
    int64_t first = 0;
    const bool is_first = first_ns.compare_exchange_strong(first, now.count());
    if (!is_first && now - std::chrono::nanoseconds(first) >= kOneStop) ::_exit(128 + signal);
  }
  if (is_requested) return;
  if (speaks) write_note(stopping_note());
  request_stop();
}

void on_alarm(int) {
  if (unsaved == 0) return;
  write_note("brim: stopped; there was nothing to save\n");
  ::_exit(static_cast<int>(Exit::kStopped));
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void install_stop_handlers() {
  const char* rank = std::getenv("RANK");
  const bool has_launcher = std::getenv("TORCHELASTIC_RUN_ID") != nullptr;
  speaks = !has_launcher && (rank == nullptr || rank == std::string_view("0"));
  handle(SIGINT, on_signal);
  handle(SIGTERM, on_signal);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) handle(SIGHUP, on_signal);
  handle(SIGALRM, on_alarm);
  handle(SIGPIPE, SIG_IGN);
  handle(SIGXFSZ, SIG_IGN);
}

std::string_view stopping_note() {
  constexpr std::string_view kNote = "\nbrim: stopping; a second signal stops at once\n";
  return kNote.substr(::isatty(STDERR_FILENO) == 1 ? 0 : 1);
}

bool stop_requested() { return is_requested; }

void request_stop() {
  if (is_requested.exchange(true)) return;  // the time that is left counts from the first
  if (unsaved > 0) ::alarm(kUnsavedLimit_s);
}

bool sleep_unless_stopped(std::chrono::duration<double> duration) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + duration;
  while (!stop_requested() && Clock::now() < end) {
    std::this_thread::sleep_for(
        std::min<std::chrono::duration<double>>(kStopPoll, end - Clock::now()));
  }
  return !stop_requested();
}

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &former_);
}

BlockedSignals::~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

NothingToSave::NothingToSave() {
  if (unsaved++ == 0 && stop_requested()) ::alarm(kUnsavedLimit_s);
}

NothingToSave::~NothingToSave() {
  if (--unsaved == 0) ::alarm(0);
}

}  // namespace brim
