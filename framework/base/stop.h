// A stop that is asked for: by SIGINT, SIGTERM or SIGHUP, or by another rank. The training loop
// reads it once a step, and every wait ends by it, so that a checkpoint is there within seconds. A
// second SIGINT or SIGTERM, kOneStop after the first or later, ends the process at once (files stay
// whole, because they only ever appear by rename).
#pragma once

#include <chrono>
#include <csignal>
#include <string_view>

namespace brim {

/// What the first signal has said on stderr: by a process of its own, or by the launcher of ranks.
/// On a terminal it stands below the "^C". For a signal handler.
std::string_view stopping_note();

/// Signals that come closer are one: timeout(1) and service managers signal a process and its
/// group.
inline constexpr std::chrono::milliseconds kOneStop{500};

/// How often a wait looks for a stop.
inline constexpr std::chrono::milliseconds kStopPoll{50};

/// Installs the handlers; call once, before threads start. A SIGHUP that is ignored already (nohup)
/// stays so. Where a reader of our output goes away, or a file exceeds the limit on its size
/// (ulimit -f), that is a write error then, no longer a signal that kills.
void install_stop_handlers();

/// True once a stop was asked for.
bool stop_requested();

/// For a stop that another process of this run was asked for.
void request_stop();

/// Sleeps, though not against a stop: returns whether none was asked for.
bool sleep_unless_stopped(std::chrono::duration<double> duration);

/// Blocks all signals of its thread while it lives: around a fork, after which a signal would be
/// handled in the child as in this process, and be lost.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  const sigset_t& former() const { return former_; }

 private:
  sigset_t former_;
};

/// While one lives there is nothing to save: a stop ends the process with status 75 after 3 s,
/// wherever its threads wait, unless it has ended in better order by then.
class NothingToSave {
 public:
  NothingToSave();
  ~NothingToSave();
  NothingToSave(const NothingToSave&) = delete;
  NothingToSave& operator=(const NothingToSave&) = delete;
};

}  // namespace brim
