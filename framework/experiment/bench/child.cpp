#include "framework/experiment/bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "framework/base/descriptor.h"
#include "framework/base/stop.h"
#include "framework/base/temporaries.h"

namespace brim::experiment {
namespace fs = std::filesystem;
namespace {

constexpr int kLookEvery_ms = 500;
constexpr size_t kMaxErrors = 10;
constexpr size_t kLongestError = 2000;
constexpr std::string_view kBenchPrefix = "brim-bench-";

/// Between fork and exec, where nothing may be allocated.
[[noreturn]] void become(char* const* words, pid_t parent, int null_fd, int log_fd) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(127);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (::dup2(null_fd, 0) < 0 || ::dup2(log_fd, 1) < 0 || ::dup2(log_fd, 2) < 0) ::_exit(127);
  ::execv("/proc/self/exe", words);
  ::_exit(127);
}

pid_t start(const std::vector<std::string>& arguments, const fs::path& log) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (null.get() < 0 || output.get() < 0) {
    throw Error(Exit::kResource, "{}: cannot open: {}", log.string(), errno_text(errno));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(words.data(), parent, null.get(), output.get());
  if (pid < 0) throw Error(Exit::kResource, "cannot start a process: {}", errno_text(errno));
  return pid;
}

/// Waits for the process's end, at most kLookEvery_ms; a signal wakes it too.
void wait_a_while(int process_fd) {
  pollfd waited{.fd = process_fd, .events = POLLIN, .revents = 0};
  ::poll(&waited, 1, kLookEvery_ms);
}

std::vector<std::string> error_lines(const fs::path& log) {
  std::vector<std::string> errors;
  std::ifstream file(log);
  for (std::string line; errors.size() < kMaxErrors && std::getline(file, line);) {
    if (line.starts_with("error[")) errors.push_back(line.substr(0, kLongestError));
  }
  return errors;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  remove_stale_folders(kBenchPrefix);
  std::error_code problem;
  fs::path place = fs::temp_directory_path(problem);
  if (problem) place = "/tmp";
  std::string name = (place / fmt::format("{}XXXXXX", kBenchPrefix)).string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(Exit::kResource, "{}: cannot make a temporary folder: {}", place.string(),
                errno_text(errno));
  }
  path_ = name;
  try {
    lock_.emplace(path_ / kFolderLock, "another bench has this folder");
  } catch (...) {  // without a lock no later bench would take it for one of ours
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

TemporaryFolder::~TemporaryFolder() {
  lock_.reset();  // over NFS an open file stays in its folder, which then stays too
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

ChildEnd run_child(const std::vector<std::string>& arguments, const fs::path& log,
                   const std::function<void()>& meanwhile) {
  const pid_t pid = start(arguments, log);
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  bool is_told = false;
  int status = 0;
  struct rusage used {};
  while (::wait4(pid, &status, WNOHANG, &used) == 0) {
    if (stop_requested() && !is_told) {
      ::kill(pid, SIGTERM);
      is_told = true;
    }
    wait_a_while(process.get());
    meanwhile();
  }
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime),
          .resident_peak_bytes = int64_t{used.ru_maxrss} * 1024,
          .errors = error_lines(log)};
}

Error error_of(const ChildEnd& end, const std::string& where) {
  constexpr std::array kKnown = {Exit::kBug,        Exit::kRecipe,   Exit::kData,
                                 Exit::kCheckpoint, Exit::kResource, Exit::kDistributed,
                                 Exit::kNumeric,    Exit::kStopped};
  Exit status = Exit::kBug;
  for (const Exit known : kKnown) {
    if (static_cast<int>(known) == end.status) status = known;
  }
  std::string message;
  for (const std::string& line : end.errors) {
    const size_t word_end = line.find("]: ");
    message += message.empty() ? "" : "\n";
    message += where + ": " + (word_end == std::string::npos ? line : line.substr(word_end + 3));
  }
  if (!message.empty()) return {status, message};
  if (end.status == 128 + SIGKILL) {
    return {Exit::kResource,
            "{}: the run was killed, as the system does where memory runs out; lower batch.micro",
            where};
  }
  if (end.status > 128) {
    return {Exit::kBug, "{}: the run was ended by signal {} ({})", where, end.status - 128,
            ::strsignal(end.status - 128)};
  }
  return {status, "{}: the run ended with status {}", where, end.status};
}

}  // namespace brim::experiment
