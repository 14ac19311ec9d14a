// The folders that a launch writes: DIR/RUN_ID/attempt_K/LOCAL_RANK/{stdout.log, stderr.log,
// error.json}, as torchrun lays them out; of several nodes, which may share DIR and have one id,
// DIR/RUN_ID/node_N/attempt_K/….
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "framework/base/temporaries.h"
#include "framework/launch/options.h"

namespace brim::launch {

class RunFiles {
 public:
  /// Logs are kept where options ask for them; without, a temporary folder for error files goes
  /// with this object. Throws Error(kResource) where the folder for logs can't be made.
  RunFiles(const LaunchOptions& options, const std::string& run_id);

  /// Made if need be; empty where no folder could be made and none was asked for.
  std::filesystem::path rank_folder(int attempt, int local_rank) const;

 private:
  std::optional<TemporaryFolder> temporary_;
  std::filesystem::path folder_;
};

}  // namespace brim::launch
