#include "framework/launch/launcher.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <ctime>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/torchelastic.h"
#include "framework/launch/attempt.h"
#include "framework/launch/processes.h"

namespace brim::launch {
namespace {

/// Orphans of workers become children of this process, where they can be seen and ended.
class Subreaper {
 public:
  Subreaper() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &former_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, former_); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int former_ = 0;
};

/// Nodes must agree on it, so with several it can't hold the time.
std::string make_run_id(const LaunchOptions& options) {
  if (!options.run_id.empty()) return options.run_id;
  if (options.nodes > 1) return fmt::format("port-{}", options.master_port);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &parts);
  return fmt::format("{}-{}", text, ::getpid());
}

/// --log-dir alone asks for logs of everything.
LaunchOptions with_defaults(LaunchOptions options) {
  if (!options.log_folder.empty() && options.redirects.is_empty() && options.tee.is_empty()) {
    options.tee.every_rank = 3;
  }
  return options;
}

/// A recipe that is wrong stays wrong, and the same state gives the same NaN.
bool is_worth_another(const AttemptResult& outcome) {
  return outcome.status != 0 && !outcome.was_stopped &&
         outcome.status != static_cast<int>(Exit::kRecipe) &&
         outcome.status != static_cast<int>(Exit::kNumeric) &&
         outcome.status != static_cast<int>(Exit::kStopped);
}

int report(const AttemptResult& outcome) {
  if (!outcome.error.empty()) {
    log::write_plain(fmt::format("error[{}]: {}\n", outcome.kind, printable_lines(outcome.error)));
    write_torchelastic_error(fmt::format("error[{}]: {}", outcome.kind, outcome.error),
                             outcome.status);
  }
  return outcome.status;
}

}  // namespace

int launch(const LaunchOptions& given) {
  validate(given);
  const LaunchOptions options = with_defaults(given);
  const std::string run_id = make_run_id(options);
  const std::vector<Cores> cores =
      bind_ranks(options.bind, options.ranks_per_node,
                 options.bind == Bind::kNone ? Cores() : allowed_cores());
  const RunFiles files(options, run_id);
  const std::vector<pid_t> earlier_children = children({});
  Guard guard;
  SignalPipe signals;
  Subreaper subreaper;
  Sink out(STDOUT_FILENO);
  Sink err(STDERR_FILENO);
  const Shared shared = {options, run_id, files, cores, earlier_children, guard, signals, out, err};
  for (int restarts = 0;; ++restarts) {
    const AttemptResult outcome = run_attempt(shared, options.former_starts + restarts);
    if (!is_worth_another(outcome) || restarts == options.max_restarts) return report(outcome);
    log::warning("{}; starting again (restart {} of {})", outcome.error, restarts + 1,
                 options.max_restarts);
  }
}

}  // namespace brim::launch
