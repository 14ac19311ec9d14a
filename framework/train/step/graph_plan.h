// Which passes of a step are recorded, and when: each kind of pass is taken as it is a few times,
// then recorded, then replayed. Knows shapes and counts only; step_graph.h does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace brim::train {

/// What must be equal for one recording to serve both: sizes and types of a batch's tensors.
using PassShape = std::vector<int64_t>;

class GraphPlan {
 public:
  /// Passes of a kind before it is recorded.
  static constexpr int kWarmUps = 3;
  /// Kinds that are recorded; more, as where each batch has a size of its own, are left as they
  /// are, since each recording takes memory.
  static constexpr size_t kMaxGraphs = 4;

  enum class Mode { kRun, kRecord, kReplay };
  struct Choice {
    Mode mode = Mode::kRun;
    size_t graph = 0;  // index of what to record or replay, below kMaxGraphs
  };

  /// For each pass. A step's first one makes its gradients; later ones add to them, and so belong
  /// to the recording that made them. Where that was none, they are run.
  Choice next(const PassShape& shape, bool is_first);

  /// The choice to record was carried out.
  void recorded(size_t graph) { kinds_[graph].is_recorded = true; }

  /// All recordings are gone, and each is made again when its turn comes. Between two steps.
  void release();
  /// The same, and what was counted is forgotten.
  void reset();

 private:
  struct Kind {
    PassShape shape;
    std::optional<size_t> adds_to;  // the recording whose gradients it adds to; none: a first pass
    int passes = 0;
    bool is_recorded = false;
  };
  std::optional<size_t> find(const PassShape& shape, std::optional<size_t> adds_to);

  std::vector<Kind> kinds_;
  std::optional<size_t> gradients_of_;  // the recording that made this step's
};

}  // namespace brim::train
