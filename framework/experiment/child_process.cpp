#include "framework/experiment/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/stop.h"

namespace brim::experiment {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxErrors = 10;
constexpr size_t kLongestError = 2000;

/// What the child becomes; made before the fork, after which nothing may be allocated.
struct Image {
  std::vector<char*> words;
  std::vector<char*> variables;
  pid_t parent;
  int null_fd;
  int log_fd;
  bool has_own_group;
  sigset_t mask;  // of signals, for the child
};

[[noreturn]] void become(const Image& image) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != image.parent) ::_exit(127);
  if (image.has_own_group && ::setpgid(0, 0) != 0) ::_exit(127);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  sigprocmask(SIG_SETMASK, &image.mask, nullptr);
  if (::dup2(image.null_fd, 0) < 0 || ::dup2(image.log_fd, 1) < 0 || ::dup2(image.log_fd, 2) < 0) {
    ::_exit(127);
  }
  ::execve("/proc/self/exe", image.words.data(), image.variables.data());
  ::_exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

/// This process's variables, those of `own` in place of theirs.
std::vector<std::string> variables_with(
    const std::vector<std::pair<std::string, std::string>>& own) {
  std::vector<std::string> variables;
  for (char** at = ::environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    const bool is_replaced = std::ranges::any_of(
        own, [&](const auto& pair) { return variable.starts_with(pair.first + "="); });
    if (!is_replaced) variables.push_back(variable);
  }
  for (const auto& [name, value] : own) variables.push_back(name + "=" + value);
  return variables;
}

pid_t start(const ChildOptions& options) {
  std::vector<std::string> words = {fs::read_symlink("/proc/self/exe").string()};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  const std::vector<std::string> variables = variables_with(options.environment);
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor output(
      ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (null.get() < 0 || output.get() < 0) {
    throw Error(Exit::kResource, "{}: cannot open: {}", options.log.string(), errno_text(errno));
  }
  const BlockedSignals blocked;
  const Image image{.words = pointers(words),
                    .variables = pointers(variables),
                    .parent = ::getpid(),
                    .null_fd = null.get(),
                    .log_fd = output.get(),
                    .has_own_group = options.has_own_group,
                    .mask = blocked.former()};
  const pid_t pid = ::fork();
  if (pid == 0) become(image);
  if (pid < 0) throw Error(Exit::kResource, "cannot start a process: {}", errno_text(errno));
  return pid;
}

int64_t size_of(const fs::path& log) {
  std::error_code error;
  const auto bytes = fs::file_size(log, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

std::vector<std::string> error_lines(const fs::path& log, int64_t begin) {
  std::vector<std::string> errors;
  std::ifstream file(log);
  file.seekg(begin);
  for (std::string line; errors.size() < kMaxErrors && std::getline(file, line);) {
    if (line.starts_with("error[")) errors.push_back(line.substr(0, kLongestError));
  }
  return errors;
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options)
    : log_(options.log),
      log_begin_(size_of(options.log)),
      pid_(start(options)),
      process_(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))) {}

ChildProcess::~ChildProcess() {
  if (has_ended_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<ChildEnd> ChildProcess::try_wait() {
  int status = 0;
  struct rusage used {};
  if (has_ended_ || ::wait4(pid_, &status, WNOHANG, &used) == 0) return std::nullopt;
  has_ended_ = true;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return ChildEnd{.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                  .cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime),
                  .resident_peak_bytes = int64_t{used.ru_maxrss} * 1024,
                  .errors = error_lines(log_, log_begin_)};
}

void ChildProcess::stop() {
  if (is_told_ || has_ended_) return;
  ::kill(pid_, SIGTERM);
  is_told_ = true;
}

}  // namespace brim::experiment
