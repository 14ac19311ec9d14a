#include "framework/launch/attempt.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "framework/base/descriptor.h"
#include "framework/base/error.h"
#include "framework/base/listener.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/torchelastic.h"
#include "framework/base/units.h"
#include "framework/launch/environment.h"
#include "framework/launch/processes.h"
#include "framework/launch/worker.h"

namespace brim::launch {
namespace {

/// The socket that rank 0's store listens on, opened here: no port is picked and let go. Where
/// `address` belongs to no interface of this machine (a NAT's, a service's), or to none by which
/// other nodes come in, it listens on all.
/// Throws Error(kResource) for a port that is taken, naming who holds it, and UsageError for a name
/// that means no address.
Listener listen_for_store(const std::string& address, int port, bool one_machine) {
  const bool is_named = one_machine || !is_known_here_only(address);
  Listener listener = listen_on(is_named ? address : "", port);
  if (listener.fd < 0 && listener.code == EADDRNOTAVAIL) listener = listen_on("", port);
  if (listener.fd >= 0) return listener;
  if (listener.code == 0) {
    throw UsageError("--master-addr: '{}' means no address: {}", address, listener.problem);
  }
  if (listener.code == EADDRINUSE) {
    const std::string owner = listener_of(port);
    throw Error(Exit::kResource,
                "port {} on {} is taken{}; end that program or choose another --master-port", port,
                address, owner.empty() ? "" : " by " + owner);
  }
  throw Error(Exit::kResource, "cannot listen on {} port {}: {}", address, port, listener.problem);
}

// From the first failure to the last process gone these add up to less than 5 s.
constexpr double kSettle_s = 2;  // for the cause, where a consequence was seen first
constexpr double kGrace_s = 2;   // from SIGTERM to SIGKILL
constexpr double kKillLimit_s = 5;
constexpr double kFlush_s = 1;  // after a stop, for whoever reads our output

constexpr double kTick_s = 0.05;  // where something is looked for that wakes no poll()
constexpr double kNever = std::numeric_limits<double>::infinity();

enum class State {
  kRunning,
  kStopping,  // a stop was asked for: until the deadline for a checkpoint
  kSettling,  // a rank lost its peers: until the deadline for the cause to show
  kEnding,    // a rank failed, the others have SIGTERM
  kKilling,   // all have SIGKILL
};

struct Worker {
  int rank;
  pid_t pid;
  std::string error_file;
  OutputStream out;
  OutputStream err;
  std::optional<int> wait_status;  // once it is dead
};

class Attempt {
 public:
  Attempt(const Shared& shared, int restarts) : shared_(shared), restarts_(restarts) {}
  ~Attempt() { end_children(0, shared_.earlier_children); }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  AttemptResult run() {
    start();
    while (!is_over()) watch();
    clear_up();
    return outcome();
  }

 private:
  void start();
  void start_rank(int local_rank, int port, int store_fd);
  OutputStream make_stream(int fd, int local_rank, bool is_stdout) const;

  void watch();
  double wait_limit_s() const;
  void on_signal(int signal);
  void on_deadline();
  void reap();
  void judge();
  void end_others();
  void kill_all();
  void signal_groups(int signal) const;
  int passed_signal() const { return stop_signal_ == SIGHUP ? SIGTERM : stop_signal_; }
  bool is_failure(int wait_status) const;
  bool all_dead() const;
  bool all_saved() const;
  bool is_over() const;
  std::vector<pid_t> left_behind() const;

  void clear_up();
  void flush_sinks();
  Failure failure_of(const Worker& worker) const;
  std::string unfinished_ranks() const;
  AttemptResult outcome() const;

  const Shared& shared_;
  const int restarts_;
  std::vector<Worker> workers_;
  std::vector<size_t> failed_;  // workers, in the order noticed
  State phase_ = State::kRunning;
  double deadline_ = kNever;
  int stop_signal_ = 0;  // the first one
  std::chrono::steady_clock::time_point stopped_at_;
  int kill_signal_ = 0;  // the second one
  std::string overdue_;  // ranks that took too long to stop
};

void Attempt::start() {
  const LaunchOptions& options = shared_.options;
  const bool serves = options.node_rank == 0;
  const Listener listener = serves ? listen_for_store(options.master_addr, options.master_port,
                                                      /*one_machine=*/options.nodes == 1)
                                   : Listener{.port = options.master_port};
  auto store = std::make_unique<Descriptor>(listener.fd);
  workers_.reserve(static_cast<size_t>(options.ranks_per_node));
  for (int local_rank = 0; local_rank < options.ranks_per_node; ++local_rank) {
    start_rank(local_rank, listener.port, store == nullptr ? -1 : store->get());
    store.reset();  // rank 0's alone: connections to it must fail once rank 0 is dead
  }
}

void Attempt::start_rank(int local_rank, int port, int store_fd) {
  const LaunchOptions& options = shared_.options;
  const std::filesystem::path folder = shared_.files.rank_folder(restarts_, local_rank);
  WorkerPlace place;
  place.run_id = shared_.run_id;
  place.restarts = restarts_;
  place.master_port = port;
  place.local_rank = local_rank;
  place.store_fd = store_fd;
  if (!folder.empty()) {
    place.error_file = folder / "error.json";
    ::unlink(place.error_file.c_str());  // of an earlier launch with this id
  }
  place.cores = shared_.cores[static_cast<size_t>(local_rank)];
  const StartedWorker started =
      start_worker({options.command, worker_environment(options, place), place.cores, store_fd},
                   shared_.signals, shared_.guard);
  workers_.push_back({global_rank(options, local_rank), started.pid, place.error_file,
                      make_stream(started.stdout_fd, local_rank, true),
                      make_stream(started.stderr_fd, local_rank, false), std::nullopt});
}

OutputStream Attempt::make_stream(int fd, int local_rank, bool is_stdout) const {
  const LaunchOptions& options = shared_.options;
  const auto chosen = [&](const StreamChoice& choice) {
    return is_stdout ? choice.has_stdout(local_rank) : choice.has_stderr(local_rank);
  };
  const std::vector<int>& shown = options.shown_ranks;
  const bool is_shown = shown.empty() || std::count(shown.begin(), shown.end(), local_rank) != 0;
  Sink* sink = is_stdout ? &shared_.out : &shared_.err;
  if (!is_shown || chosen(options.redirects)) sink = nullptr;
  LogFile log;
  if (chosen(options.redirects) || chosen(options.tee)) {
    log = LogFile(shared_.files.rank_folder(restarts_, local_rank) /
                  (is_stdout ? "stdout.log" : "stderr.log"));
  }
  const int rank = global_rank(options, local_rank);
  const bool is_plain = rank == 0 || options.ranks_per_node == 1;
  return {fd, rank, is_plain ? "" : fmt::format("[rank {}] ", rank), sink, std::move(log)};
}

/// Waits for whatever comes first, and deals with it.
void Attempt::watch() {
  std::vector<pollfd> polled = {{shared_.signals.fd(), POLLIN, 0}};
  for (const Sink* sink : {&shared_.out, &shared_.err}) {
    if (sink->has_waiting()) polled.push_back({sink->fd(), POLLOUT, 0});
  }
  for (const Worker& worker : workers_) {
    for (const OutputStream* stream : {&worker.out, &worker.err}) {
      if (stream->may_read()) polled.push_back({stream->fd(), POLLIN, 0});
    }
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(std::ceil(wait_limit_s() * 1000)));
  for (const int signal : shared_.signals.take()) on_signal(signal);
  reap();
  for (Worker& worker : workers_) {
    for (OutputStream* stream : {&worker.out, &worker.err}) {
      if (stream->may_read()) stream->read_some();
      stream->flush_unfinished(now_s(), false);
    }
  }
  shared_.out.write_some();
  shared_.err.write_some();
  if (now_s() >= deadline_) on_deadline();
}

double Attempt::wait_limit_s() const {
  double limit = std::min(deadline_ - now_s(), 3600.0);
  for (const Worker& worker : workers_) {
    if (worker.out.has_unfinished() || worker.err.has_unfinished())
      limit = std::min(limit, kTick_s);
  }
  if (all_dead()) limit = std::min(limit, kTick_s);
  return std::max(limit, 0.0);
}

void Attempt::on_signal(int signal) {
  switch (signal) {
    case SIGUSR1:
    case SIGUSR2:
      for (const Worker& worker : workers_) {
        if (!worker.wait_status) ::kill(worker.pid, signal);
      }
      return;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
      break;
    default:
      return;
  }
  if (stop_signal_ != 0) {
    if (signal == SIGHUP) return;  // a terminal that closes may send it twice
    if (std::chrono::steady_clock::now() - stopped_at_ < kOneStop) return;
    kill_signal_ = signal;
    kill_all();
    return;
  }
  stop_signal_ = signal;
  stopped_at_ = std::chrono::steady_clock::now();
  request_stop();  // of this process too, whatever it does after the launch
  log::write_plain(stopping_note());
  signal_groups(passed_signal());
  if (phase_ == State::kRunning) {
    phase_ = State::kStopping;
    deadline_ = now_s() + shared_.options.stop_timeout_s;
  }
}

void Attempt::on_deadline() {
  switch (phase_) {
    case State::kRunning:
      return;
    case State::kSettling:
      return end_others();
    case State::kStopping:
      overdue_ = unfinished_ranks();
      return kill_all();
    case State::kEnding:
      return kill_all();
    case State::kKilling:
      deadline_ = kNever;  // is_over() sees it
      return;
  }
}

void Attempt::reap() {
  const bool had_living = !all_dead();
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].pid != pid || workers_[i].wait_status) continue;
      workers_[i].wait_status = status;
      shared_.guard.remove(pid);
      if (phase_ < State::kEnding && is_failure(status)) failed_.push_back(i);
    }
  }
  judge();
  // What a stopped worker leaves behind may be the one that saves the checkpoint (a shell's child).
  if (had_living && all_dead() && phase_ == State::kStopping) {
    for (const pid_t orphan : left_behind()) ::kill(orphan, SIGTERM);
  }
}

/// Acts on the failures so far.
void Attempt::judge() {
  if (failed_.empty() || phase_ >= State::kEnding) return;
  const bool has_cause = std::any_of(failed_.begin(), failed_.end(), [this](size_t i) {
    return !is_secondary(*workers_[i].wait_status);
  });
  if (has_cause || all_dead()) return end_others();
  if (phase_ == State::kSettling) return;
  phase_ = State::kSettling;
  deadline_ = now_s() + kSettle_s;
}

void Attempt::end_others() {
  phase_ = State::kEnding;
  deadline_ = now_s() + kGrace_s;
  signal_groups(SIGTERM);
}

void Attempt::kill_all() {
  phase_ = State::kKilling;
  deadline_ = now_s() + kKillLimit_s;
  signal_groups(SIGKILL);
}

/// To each living worker's process group. A dead one's number may be another's by now.
void Attempt::signal_groups(int signal) const {
  for (const Worker& worker : workers_) {
    if (!worker.wait_status) ::kill(-worker.pid, signal);
  }
}

/// Anything but success, a stop with its state saved, and the signal of a stop: as it came, which
/// a terminal sends to all of its processes, or as it was passed on.
bool Attempt::is_failure(int wait_status) const {
  const int status = exit_status(wait_status);
  return status != 0 && status != static_cast<int>(Exit::kStopped) &&
         (stop_signal_ == 0 || (status != 128 + stop_signal_ && status != 128 + passed_signal()));
}

bool Attempt::all_dead() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.wait_status.has_value(); });
}

/// No process that they left behind has anything to save.
bool Attempt::all_saved() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
    const int status = worker.wait_status ? exit_status(*worker.wait_status) : -1;
    return status == 0 || status == static_cast<int>(Exit::kStopped);
  });
}

std::vector<pid_t> Attempt::left_behind() const { return children(shared_.earlier_children); }

bool Attempt::is_over() const {
  if (phase_ == State::kKilling && deadline_ == kNever) return true;  // unkillable
  return all_dead() && (phase_ != State::kStopping || all_saved() || left_behind().empty());
}

/// Ends what the workers left behind and passes on the last of their output.
void Attempt::clear_up() {
  const bool is_orderly = failed_.empty() && phase_ < State::kEnding;
  for (const pid_t pid : end_children(is_orderly ? kGrace_s : 0, shared_.earlier_children)) {
    log::warning("process {} can't be ended: the kernel holds it", pid);
  }
  for (Worker& worker : workers_) {
    for (OutputStream* stream : {&worker.out, &worker.err}) {
      while (stream->read_some()) {
      }
      stream->flush_unfinished(0, true);
    }
  }
  flush_sinks();
}

/// Waits for the readers of our output, but not for long where a signal asks for a stop.
void Attempt::flush_sinks() {
  const double end = stop_signal_ == 0 ? kNever : now_s() + kFlush_s;
  while (true) {
    shared_.out.write_some();
    shared_.err.write_some();
    std::vector<pollfd> polled = {{shared_.signals.fd(), POLLIN, 0}};
    for (const Sink* sink : {&shared_.out, &shared_.err}) {
      if (sink->has_waiting()) polled.push_back({sink->fd(), POLLOUT, 0});
    }
    if (polled.size() == 1 || now_s() >= end) return;
    const double limit_s = std::min(end - now_s(), 3600.0);
    ::poll(polled.data(), polled.size(), static_cast<int>(std::ceil(limit_s * 1000)));
    for (const int signal : shared_.signals.take()) {
      if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) continue;
      stop_signal_ = signal;
      request_stop();
      return;
    }
  }
}

Failure Attempt::failure_of(const Worker& worker) const {
  return {worker.rank,
          worker.pid,
          *worker.wait_status,
          worker.error_file.empty() ? "" : read_torchelastic_error(worker.error_file),
          worker.err.last_lines().best(),
          worker.err.log_path()};
}

std::string Attempt::unfinished_ranks() const {
  std::string text;
  for (const Worker& worker : workers_) {
    if (!worker.wait_status) text += fmt::format("{}{}", text.empty() ? "" : ", ", worker.rank);
  }
  return text.empty() ? "processes that ranks left behind" : "rank " + text;
}

AttemptResult Attempt::outcome() const {
  AttemptResult outcome;
  outcome.was_stopped = stop_signal_ != 0;
  outcome.kind = exit_name(Exit::kDistributed);
  if (kill_signal_ != 0) {
    outcome.status = 128 + kill_signal_;
    outcome.error = fmt::format("the ranks were killed at once: a second signal came ({})",
                                signal_name(kill_signal_));
    return outcome;
  }
  if (!overdue_.empty()) {
    outcome.status = static_cast<int>(Exit::kDistributed);
    outcome.error =
        fmt::format("{} had not ended {} after {} and was killed; see --stop-timeout", overdue_,
                    format_duration(shared_.options.stop_timeout_s), signal_name(stop_signal_));
    return outcome;
  }
  if (!failed_.empty()) {
    std::vector<Failure> failures;
    for (const size_t i : failed_) failures.push_back(failure_of(workers_[i]));
    const Failure& cause = root_cause(failures);
    outcome.status = exit_status(cause.wait_status);
    outcome.kind = kind_of(cause);
    outcome.error = describe(cause);
    return outcome;
  }
  for (const Worker& worker : workers_) {  // done, stopped, or ended by the signal passed on
    const int status = worker.wait_status ? exit_status(*worker.wait_status) : 0;
    const bool is_saved = outcome.status == static_cast<int>(Exit::kStopped);
    if (status == 0 || is_saved) continue;
    outcome.status = status == 128 + passed_signal() ? 128 + stop_signal_ : status;
  }
  return outcome;
}

}  // namespace

AttemptResult run_attempt(const Shared& shared, int restarts) {
  return Attempt(shared, restarts).run();
}

}  // namespace brim::launch
