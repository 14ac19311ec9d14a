// A process that has begun something, to look at while it lives and after SIGKILL has ended it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace brim {

/// Calls body(ready) in a process of its own; ready() doesn't return. The constructor returns once
/// it was called.
class KilledProcess {
 public:
  template <class Body>
  explicit KilledProcess(Body body) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      body([&] {
        const char byte = 1;
        if (::write(ends[1], &byte, 1) != 1) ::_exit(1);
        for (;;) ::pause();
      });
      ::_exit(1);
    }
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "the process ended early";
    ::close(ends[0]);
  }
  ~KilledProcess() { kill(); }
  KilledProcess(const KilledProcess&) = delete;
  KilledProcess& operator=(const KilledProcess&) = delete;

  pid_t pid() const { return pid_; }
  void kill() {
    if (is_over_) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    is_over_ = true;
  }

 private:
  pid_t pid_ = -1;
  bool is_over_ = false;
};

}  // namespace brim
