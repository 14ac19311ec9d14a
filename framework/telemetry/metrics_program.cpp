#include "framework/telemetry/metrics_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr size_t kMaxUnsent = size_t{1} << 20;
constexpr int kLookEveryMs = 10;
constexpr double kPatienceS = 30;  // trackers take seconds to start and to upload
constexpr double kPatienceAfterStopS = 5;
const std::string kFolderVariable = "BRIM_RUN_FOLDER=";

std::vector<char*> words_of(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

/// What the program begins with: its input, the signals as they usually are, and a process group of
/// its own, so that Ctrl-C on the terminal stops the run alone, whose last lines it then still
/// gets.
class SpawnSettings {
 public:
  explicit SpawnSettings(int input) {
    ::posix_spawn_file_actions_init(&files_);
    ::posix_spawn_file_actions_adddup2(&files_, input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&files_, STDERR_FILENO, STDOUT_FILENO);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  /// errno's number, or 0.
  int spawn(pid_t& pid, const std::vector<char*>& words,
            const std::vector<char*>& variables) const {
    return ::posix_spawnp(&pid, words[0], &files_, &attributes_, words.data(), variables.data());
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

MetricsProgram::MetricsProgram(const std::vector<std::string>& words,
                               const std::filesystem::path& run)
    : name_("telemetry.exec: " + printable(words.front())) {
  start(words, run);
}

void MetricsProgram::start(const std::vector<std::string>& words,
                           const std::filesystem::path& run) {
  std::vector<std::string> variables = {kFolderVariable + std::filesystem::absolute(run).string()};
  for (char** at = ::environ; *at != nullptr; ++at) {
    if (!std::string_view(*at).starts_with(kFolderVariable)) variables.emplace_back(*at);
  }
  int ends[2] = {-1, -1};
  int problem = ::pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
  if (problem == 0) {
    problem = SpawnSettings(ends[0]).spawn(pid_, words_of(words), words_of(variables));
    ::close(ends[0]);
    input_ = ends[1];
  }
  if (problem == 0) {
    ::fcntl(input_, F_SETFL, O_NONBLOCK);
    return;
  }
  pid_ = -1;
  if (input_ >= 0) ::close(std::exchange(input_, -1));
  log::warning("{} cannot be started: {}; training continues without it", name_,
               errno_text(problem));
}

void MetricsProgram::take(std::string_view line) {
  if (input_ < 0) return;
  if (unsent_.size() + line.size() > kMaxUnsent) send();
  if (unsent_.size() + line.size() > kMaxUnsent) {
    ++dropped_;
    return;
  }
  unsent_ += line;
  send();
}

/// As much as the pipe takes.
void MetricsProgram::send() {
  size_t sent = 0;
  while (input_ >= 0 && sent < unsent_.size()) {
    const ssize_t written = ::write(input_, unsent_.data() + sent, unsent_.size() - sent);
    if (written >= 0) {
      sent += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {  // it has closed its input, or has ended
      ::close(std::exchange(input_, -1));
      log::warning("{} reads no more lines; training continues without it", name_);
    }
  }
  unsent_.erase(0, input_ < 0 ? unsent_.size() : sent);
}

bool MetricsProgram::has_ended() {
  int status = 0;
  if (status_) return true;
  const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
  // Where SIGCHLD is ignored, the kernel keeps no status.
  if (ended == pid_ || (ended < 0 && errno == ECHILD)) status_ = status;
  return status_.has_value();
}

/// False: it still runs.
bool MetricsProgram::wait_for_end(double patience_s) {
  double until_s = now_s() + patience_s;
  bool is_shortened = false;
  while (!has_ended()) {
    if (!is_shortened && stop_requested()) {
      is_shortened = true;
      until_s = std::min(until_s, now_s() + kPatienceAfterStopS);
    }
    if (now_s() >= until_s) return false;
    if (unsent_.empty() && input_ >= 0) ::close(std::exchange(input_, -1));
    pollfd room{.fd = input_, .events = POLLOUT, .revents = 0};  // poll() passes over -1
    ::poll(&room, 1, kLookEveryMs);
    send();
  }
  return true;
}

MetricsProgram::~MetricsProgram() {
  if (pid_ < 0) return;
  const bool was_late = !wait_for_end(kPatienceS);
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (has_ended()) break;
    ::kill(-pid_, signal);
    wait_for_end(1);
  }
  if (input_ >= 0) ::close(input_);
  const int64_t lost = dropped_ + std::ranges::count(unsent_, '\n');
  if (lost > 0) {
    log::warning("{} did not read fast enough: {} dropped", name_, format_plural(lost, "line"));
  }
  if (was_late) {
    log::warning("{} still ran after the run's end, and was ended", name_);
  } else if (*status_ != 0) {
    log::warning("{} {}", name_, describe_end(*status_));
  }
}

}  // namespace brim::telemetry
