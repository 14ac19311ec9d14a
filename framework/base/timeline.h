// Where a step's time went: phases that sum to the wall time of the step, by construction.
// Exactly one phase runs at any moment; what no phase claims is `other`.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace brim {

enum class Phase {
  kDataWait,
  kCopy,
  kTransform,  // of whole batches, on the device: normalisation, mixup, cutmix, erasing
  kForward,
  kBackward,
  kCommunication,  // waits for other ranks
  kOptimizer,
  kCheckpoint,
  kEvaluation,
  kOther
};
inline constexpr int kPhaseCount = 10;

/// "data_wait", "copy", …: the names in metrics.jsonl.
std::string_view phase_name(Phase phase);

/// Work on data that no step waited for, in seconds.
struct OverlappedWork {
  double decode_s = 0;       // of the loader's threads together
  double decode_cpu_s = 0;   // of that, on a core
  double decode_wall_s = 0;  // while at least one of them was at it
  // of the device, which transforms too (CopyStream::take_overlapped_s); 0 on the CPU
  double copy_s = 0;
};

/// Is told of phases as they begin, on the thread that drives the step.
class PhaseObserver {
 public:
  virtual ~PhaseObserver() = default;
  virtual void begins(Phase phase) = 0;
};

/// Not thread-safe: it belongs to the thread that drives the step.
class Timeline {
 public:
  Timeline();

  /// From now on time belongs to `phase`; the phase before ends here.
  void enter(Phase phase);

  /// From now on `observer` is told, until forget(). It stays the caller's.
  void observe(PhaseObserver& observer) { observers_.push_back(&observer); }
  void forget(PhaseObserver& observer) { std::erase(observers_, &observer); }

  /// Gives `seconds` of what `from` has been given to `to`, which learned of it afterwards.
  void move(Phase from, Phase to, double seconds);

  /// Seconds per phase since the last take(), which starts a new account.
  std::array<double, kPhaseCount> take();

 private:
  std::array<double, kPhaseCount> seconds_{};
  Phase phase_ = Phase::kOther;
  double since_s_;
  std::vector<PhaseObserver*> observers_;
};

}  // namespace brim
