// Code of your own around a whole run, as in a library that a recipe names or a program of your
// own:
//
//   BRIM_LIBRARY { brim::train::callbacks().push_back(std::make_shared<MyCallbacks>()); }
//
// A callback that calls brim::request_stop() (framework/base/stop.h) ends the run after its step,
// saved, as a signal would.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "framework/train/tasks/task.h"

namespace brim::train {

/// Called on the thread that trains, between steps, by every rank where nothing else is said. What
/// they throw ends the run.
class Callbacks {
 public:
  virtual ~Callbacks() = default;
  /// Of each step in turn, once its loss has reached the host, which may be some steps later: the
  /// mean over the global batch.
  virtual void on_step(int64_t /*step*/, float /*loss*/) {}
  virtual void on_evaluation(int64_t /*step*/, const Metrics& /*metrics*/) {}
  /// On rank 0, once the checkpoint is whole on the disk, from where a later one removes it
  /// (checkpoint.keep).
  virtual void on_checkpoint(int64_t /*step*/, const std::filesystem::path& /*folder*/) {}
};

/// Those of this process's runs, in the order in which they are called; none is null.
inline std::vector<std::shared_ptr<Callbacks>>& callbacks() {
  static std::vector<std::shared_ptr<Callbacks>> all;
  return all;
}

}  // namespace brim::train
