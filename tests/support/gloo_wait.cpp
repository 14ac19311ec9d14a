// Preloaded with fork_server.cpp. While one thread of a rank writes to a Gloo connection, Gloo's
// own thread can't read from it: it asks epoll again, at once, for as long as that takes. Where
// ranks share few cores, as the tests' do, that is up to a third of their processor time and keeps
// the writer from its core. Here a thread that asks again so soon sleeps first.
#include <dlfcn.h>
#include <sys/epoll.h>

#include <chrono>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using Wait = int (*)(int, epoll_event*, int, int);

// To read a message takes longer.
constexpr auto kAtOnce = std::chrono::microseconds(3);
constexpr auto kPause = std::chrono::microseconds(100);

}  // namespace

extern "C" int epoll_wait(int epoll, epoll_event* events, int max_events, int timeout_ms) {
  static const auto wait = reinterpret_cast<Wait>(::dlsym(RTLD_NEXT, "epoll_wait"));
  static thread_local Clock::time_point answered;
  if (Clock::now() - answered < kAtOnce) std::this_thread::sleep_for(kPause);
  const int count = wait(epoll, events, max_events, timeout_ms);
  if (count > 0) answered = Clock::now();
  return count;
}
