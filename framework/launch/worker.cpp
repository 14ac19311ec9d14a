#include "framework/launch/worker.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/stop.h"

namespace brim::launch {
namespace {

/// Both ends, closed on exec and by the destructor unless taken.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) {
      throw Error(Exit::kResource,
                  "cannot make a pipe: {}; raise the limit on open files (ulimit -n)",
                  errno_text(errno));
    }
  }
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) ::close(end);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  int take_read_end() { return std::exchange(ends_[0], -1); }
  void close_write_end() { ::close(std::exchange(ends_[1], -1)); }

 private:
  int ends_[2] = {-1, -1};
};

/// Everything the child needs between fork and exec, where nothing may be allocated.
struct ChildPlan {
  pid_t launcher;
  int null_fd;
  int stdout_fd;
  int stderr_fd;
  int inherited_fd;
  int problem_fd;
  const cpu_set_t* cores;
  const sigset_t* signal_mask;
  const SignalPipe* signals;
  Guard* guard;
  char* const* command;
  char* const* environment;
};

[[noreturn]] void give_up(const ChildPlan& plan) {
  const int problem = errno;
  [[maybe_unused]] const auto written = ::write(plan.problem_fd, &problem, sizeof(problem));
  ::_exit(127);
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(plan);
  if (::getppid() != plan.launcher) ::_exit(127);  // it died before the line above
  ::setsid();
  plan.guard->add(::getpid());  // before it can start others
  if (::dup2(plan.null_fd, 0) < 0 || ::dup2(plan.stdout_fd, 1) < 0 ||
      ::dup2(plan.stderr_fd, 2) < 0) {
    give_up(plan);
  }
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);  // Linux 5.11; before, only the caller's stay open
  if (plan.inherited_fd >= 0 && ::fcntl(plan.inherited_fd, F_SETFD, 0) != 0) give_up(plan);
  if (plan.cores != nullptr && ::sched_setaffinity(0, sizeof(cpu_set_t), plan.cores) != 0) {
    give_up(plan);
  }
  plan.signals->restore_in_child();
  pthread_sigmask(SIG_SETMASK, plan.signal_mask, nullptr);
  ::execve(plan.command[0], plan.command, plan.environment);
  give_up(plan);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

cpu_set_t cpu_set(const Cores& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return set;
}

/// The error number that the child reported before exec, or 0 when exec closed the pipe.
int reported_problem(int fd) {
  int problem = 0;
  ssize_t count = 0;
  do {
    count = ::read(fd, &problem, sizeof(problem));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(problem) ? problem : 0;
}

}  // namespace

StartedWorker start_worker(const WorkerStart& start, const SignalPipe& signals, Guard& guard) {
  Pipe out;
  Pipe err;
  Pipe problem;
  const std::vector<char*> command = pointers(start.command);
  const std::vector<char*> environment = pointers(start.environment);
  const cpu_set_t cores = cpu_set(start.cores);
  const int null_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null_fd < 0) throw Error(Exit::kResource, "/dev/null: cannot open: {}", errno_text(errno));
  BlockedSignals blocked;
  const ChildPlan plan = {::getpid(),
                          null_fd,
                          out.write_end(),
                          err.write_end(),
                          start.inherited_fd,
                          problem.write_end(),
                          start.cores.empty() ? nullptr : &cores,
                          &blocked.former(),
                          &signals,
                          &guard,
                          command.data(),
                          environment.data()};
  const pid_t pid = ::fork();
  if (pid == 0) run_child(plan);
  const int fork_problem = errno;
  ::close(null_fd);
  if (pid < 0) {
    throw Error(Exit::kResource, "cannot start a process: {}", errno_text(fork_problem));
  }
  problem.close_write_end();
  if (const int refused = reported_problem(problem.read_end()); refused != 0) {
    ::waitpid(pid, nullptr, 0);
    guard.remove(pid);
    throw Error(Exit::kRecipe, "{}: cannot be started: {}{}", start.command[0], errno_text(refused),
                refused == ENOEXEC ? " (a script needs a first line such as #!/bin/sh)" : "");
  }
  ::fcntl(out.read_end(), F_SETFL, O_NONBLOCK);
  ::fcntl(err.read_end(), F_SETFL, O_NONBLOCK);
  return {pid, out.take_read_end(), err.take_read_end()};
}

}  // namespace brim::launch
