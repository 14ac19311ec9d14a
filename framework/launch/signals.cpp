#include "framework/launch/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "framework/base/error.h"

namespace brim::launch {
namespace {

std::atomic<int> write_end = -1;

void on_signal(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(write_end, &byte, 1);  // full: it's awake anyway
  errno = saved;
}

/// SIGINT may not: a shell script's `&` ignores it for a program, which must still stop on it.
bool may_stay_ignored(int signal) {
  return signal != SIGINT && signal != SIGTERM && signal != SIGCHLD;
}

}  // namespace

SignalPipe::SignalPipe() {
  if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(Exit::kResource, "cannot make a pipe: {}", errno_text(errno));
  }
  write_end = ends_[1];
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGXFSZ}) {
    struct sigaction former {};
    sigaction(signal, nullptr, &former);
    former_.emplace_back(signal, former);
    if (former.sa_handler == SIG_IGN && may_stay_ignored(signal)) continue;
    struct sigaction action {};
    action.sa_handler = signal == SIGPIPE || signal == SIGXFSZ ? SIG_IGN : on_signal;
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

SignalPipe::~SignalPipe() {
  for (const auto& [signal, former] : former_) sigaction(signal, &former, nullptr);
  write_end = -1;
  ::close(ends_[0]);
  ::close(ends_[1]);
}

std::vector<int> SignalPipe::take() {
  std::vector<int> signals;
  unsigned char bytes[256];
  for (ssize_t count = 0; (count = ::read(ends_[0], bytes, sizeof(bytes))) > 0;) {
    signals.insert(signals.end(), bytes, bytes + count);
  }
  return signals;
}

void SignalPipe::restore_in_child() const {
  for (const auto& [signal, former] : former_) {
    struct sigaction action {};
    const bool stays_ignored = former.sa_handler == SIG_IGN && may_stay_ignored(signal);
    action.sa_handler = stays_ignored ? SIG_IGN : SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("number {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace brim::launch
