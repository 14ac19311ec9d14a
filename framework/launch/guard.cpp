#include "framework/launch/guard.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "framework/base/error.h"
#include "framework/base/stop.h"

namespace brim::launch {
namespace {

constexpr size_t kMaxGroups = 4096;

// In the guard nothing may be allocated: it is forked from a process that may have threads.
std::array<pid_t, kMaxGroups> groups{};

void note(pid_t message) {
  const pid_t wanted = message > 0 ? 0 : -message;  // a free place, or the one to free
  const auto place = std::find(groups.begin(), groups.end(), wanted);
  if (place != groups.end()) *place = std::max(message, 0);
}

/// Listens until the launcher is gone. Each message is a process id, or its negative to forget it.
[[noreturn]] void guard(int socket) {
  ::setsid();
  ::prctl(PR_SET_NAME, "trainrun-guard");
  ::dup2(socket, 0);  // nothing else stays open: no one waits for the end of a pipe that we hold
  ::close_range(1, ~0U, 0);
  while (true) {
    pid_t message = 0;
    const ssize_t count = ::recv(0, &message, sizeof(message), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof(message)) break;
    note(message);
  }
  for (const pid_t group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  if (::getpid() == 1) return;  // a container's first process: the kernel ends all others with it
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(Exit::kResource, "cannot make a socket: {}", errno_text(errno));
  }
  socket_ = ends[0];
  BlockedSignals blocked;  // for good in the guard
  const pid_t between = ::fork();
  if (between == 0) {
    if (::fork() == 0) guard(ends[1]);
    ::_exit(0);
  }
  const int problem = errno;
  ::close(ends[1]);
  if (between < 0) {
    ::close(socket_);
    throw Error(Exit::kResource, "cannot start a process: {}", errno_text(problem));
  }
  while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Guard::~Guard() {
  if (socket_ < 0) return;
  ::shutdown(socket_, SHUT_WR);
  char byte = 0;
  while (::recv(socket_, &byte, 1, 0) < 0 && errno == EINTR) {
  }
  ::close(socket_);
}

void Guard::add(pid_t pid) { send(pid); }

void Guard::remove(pid_t pid) { send(-pid); }

/// Without the guard, killed by hand, a launch continues as well.
void Guard::send(pid_t message) {
  [[maybe_unused]] const auto sent = ::send(socket_, &message, sizeof(message), MSG_NOSIGNAL);
}

}  // namespace brim::launch
