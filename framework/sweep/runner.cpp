#include "framework/sweep/runner.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/experiment/bench/child.h"
#include "framework/sweep/asha.h"
#include "framework/sweep/table.h"

namespace brim::sweep {
namespace fs = std::filesystem;
namespace {

constexpr int kLookEvery_ms = 500;
constexpr double kLockPatience_s = 20.0;

/// A trial whose sweep was killed dies with it, but not at the same moment.
void wait_for_lock(const fs::path& run) {
  const double end_s = now_s() + kLockPatience_s;
  while (FileLock::try_lock(run / "lock") == nullptr) {
    if (now_s() < end_s && sleep_unless_stopped(kStopPoll)) continue;
    throw Error(Exit::kResource, "{}: another process trains in this folder", run.string());
  }
}

bool may_pass_later(const Trial& trial) {
  return trial.state == State::kFailed && trial.failures >= kMaxFailures;
}

}  // namespace

Runner::Runner(Store& store, Devices& devices, Trust trust)
    : store_(store), plan_(store.plan()), trust_(trust), devices_(devices) {
  store_.take_back(trials_);
}

Exit Runner::run() {
  show();
  for (;;) {
    take_requests();
    const bool may_start = !stop_requested() && request_ == Request::kRun;
    if (may_start) start_trials();
    if (!may_start) stop_all();
    if (running_.empty() && is_over()) break;
    wait_a_while();
    collect();
  }
  log::live("");
  return finish();
}

void Runner::take_requests() {
  const Request before = std::exchange(request_, store_.request());
  if (request_ == Request::kPause && before != request_) {
    log::info(
        "paused: trials under way save their state and stop; trainer sweep resume {} "
        "continues",
        shell_word(store_.folder().string()));
  }
  if (request_ == Request::kRun && before == Request::kPause) log::info("continuing");
  store_.refresh(trials_);
}

/// Whether this process is to leave, which runs no trial now.
bool Runner::is_over() {
  if (stop_requested()) return true;
  if (request_ == Request::kPause) return false;
  if (request_ == Request::kCancel) store_.cancel(trials_);
  if (!next_trial(plan_, trials_)) store_.take_back(trials_);
  return !next_trial(plan_, trials_);
}

void Runner::start_trials() {
  const auto choose = [this](std::span<const Trial> trials) { return next_trial(plan_, trials); };
  while (next_trial(plan_, trials_)) {
    auto placement = devices_.take();
    if (!placement) {
      if (running_.empty() && !is_waiting_) log::info("waiting: {}", devices_.why_none());
      is_waiting_ = running_.empty();
      return;
    }
    is_waiting_ = false;
    auto claim = store_.claim(trials_, choose);
    if (!claim) {  // other processes were faster
      devices_.give_back(*placement);
      return;
    }
    start(std::move(*claim), std::move(*placement));
  }
}

void Runner::start(Claim claim, Placement placement) {
  const Trial& trial = trials_[claim.trial];
  const fs::path run = store_.run_folder(trial);
  const int64_t end = next_end(plan_, trial);
  std::vector<std::string> arguments = {
      "train", (run / "recipe.toml").string(), "--output", run.string(), "--resume", "auto"};
  if (trust_.is_given) arguments.emplace_back("--trust-library");
  arguments.insert(arguments.end(), placement.arguments.begin(), placement.arguments.end());
  if (end < trial.steps) {  // the first part of the whole run: the schedule is the whole run's
    arguments.insert(arguments.end(), {"--set", fmt::format("train.steps={}", end), "--set",
                                       fmt::format("schedule.steps={}", trial.schedule_steps)});
  }
  try {
    wait_for_lock(run);
    write_file(run / "recipe.toml", trial.recipe);
  } catch (const Error&) {
    devices_.give_back(placement);
    throw;
  }
  running_.push_back({.claim = std::move(claim),
                      .placement = placement,
                      .start_s = now_s(),
                      .process = std::make_unique<experiment::ChildProcess>(
                          experiment::ChildOptions{.arguments = std::move(arguments),
                                                   .log = run / "trainer.log",
                                                   .environment = placement.environment,
                                                   .has_own_group = true})});
}

void Runner::collect() {
  bool has_changed = false;
  for (size_t i = 0; i < running_.size();) {
    Running& running = running_[i];
    const auto end = running.process->try_wait();
    if (!end) {
      ++i;
      continue;
    }
    const Running ended = std::move(running);
    running_.erase(running_.begin() + static_cast<int64_t>(i));
    Trial& trial = trials_[ended.claim.trial];
    trial.seconds += now_s() - ended.start_s;
    devices_.give_back(ended.placement);
    if (next_end(plan_, trial) < trial.steps) restore_recipe(trial);
    take_end(trial, *end, ended.process->is_told());
    store_.update(trial);
    has_changed = true;
  }
  if (has_changed) show();
}

/// A run saves the recipe that it went by, with the steps of its part.
void Runner::restore_recipe(const Trial& trial) {
  const fs::path recipe = store_.run_folder(trial) / "recipe.toml";
  try {
    write_file(recipe, trial.recipe);
  } catch (const Error& error) {
    log::warning("trial {}: its recipe.toml has the steps of this part alone: {}", trial.id,
                 error.what());
  }
}

void Runner::take_end(Trial& trial, const experiment::ChildEnd& end, bool was_told) {
  if (end.status == static_cast<int>(Exit::kDone)) {
    take_result(trial);
  } else if (end.status == static_cast<int>(Exit::kStopped) ||  // told to, or by a rule
             (was_told && end.status == 128 + SIGTERM)) {       // before it could catch the signal
    trial.state = State::kStopped;
  } else {
    const Error error = experiment::error_of(end, fmt::format("trial {}", trial.id));
    // The same recipe stays wrong, and the same state gives the same NaN.
    take_failure(trial, error, error.status() != Exit::kRecipe && error.status() != Exit::kNumeric);
  }
}

void Runner::take_result(Trial& trial) {
  try {
    const bool is_whole =
        trial.results.size() >= plan_.rungs.size() || next_end(plan_, trial) >= trial.steps;
    const auto result = store_.result_of_run(trial, /*latest=*/!is_whole);
    if (!result) {
      throw Error(Exit::kData, "trial {}: its run has recorded no finite {}", trial.id,
                  plan_.metric);
    }
    trial.results.push_back(*result);
    trial.state = is_whole ? State::kDone : State::kPaused;
    trial.failures = 0;
    trial.reason.clear();
  } catch (const Error& error) {
    take_failure(trial, error, /*may_pass=*/false);
  }
}

void Runner::take_failure(Trial& trial, const Error& error, bool may_pass) {
  ++trial.failures;
  trial.reason = error.what();
  const bool is_last = !may_pass || trial.failures >= kMaxFailures;
  trial.state = is_last ? State::kFailed : State::kStopped;
  log::warning("{}; {}", trial.reason, is_last ? "given up" : "trying once more");
  if (!first_failure_) first_failure_ = error;
}

void Runner::wait_a_while() {
  std::vector<pollfd> waited;
  for (const Running& running : running_) {
    waited.push_back({.fd = running.process->descriptor(), .events = POLLIN, .revents = 0});
  }
  ::poll(waited.data(), waited.size(), kLookEvery_ms);
}

void Runner::stop_all() {
  for (Running& running : running_) running.process->stop();
}

void Runner::show() const {
  const std::string line = summary(plan_, trials_);
  if (log::is_terminal()) log::live(line);
}

Exit Runner::finish() const {
  const std::string folder = shell_word(store_.folder().string());
  std::vector<Trial> trials = trials_;
  store_.look_at_runs(trials);
  log::info("{}", summary(plan_, trials));
  if (next_trial(plan_, trials_)) {
    log::info("stopped, state saved; continue with: trainer sweep --resume {}{}", folder,
              trust_.is_needed ? " --trust-library" : "");
    return Exit::kStopped;
  }
  const int64_t elsewhere = std::ranges::count(trials_, State::kRunning, &Trial::state);
  if (elsewhere > 0) {
    log::info("no trial is left to begin; other processes run {}",
              format_plural(elsewhere, "trial"));
    return Exit::kDone;
  }
  const bool has_result =
      std::ranges::any_of(trials_, [](const Trial& trial) { return trial.last() != nullptr; });
  if (!has_result && first_failure_) throw *first_failure_;
  log::info("everything is in {}; trainer sweep status {} shows it", folder, folder);
  if (std::ranges::any_of(trials_, may_pass_later)) {
    log::info(
        "trials that failed twice may pass later: trainer sweep --resume {}{} tries them again",
        folder, trust_.is_needed ? " --trust-library" : "");
  }
  return Exit::kDone;
}

}  // namespace brim::sweep
