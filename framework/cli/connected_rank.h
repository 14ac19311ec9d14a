// A rank of a command that measures and saves nothing: started, connected to the others, with the
// memory of its device.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "framework/base/stop.h"
#include "framework/cli/self_launch.h"
#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/job.h"

namespace brim::cli {

struct ConnectedRank {
  RankDevice here;
  std::optional<NothingToSave> nothing_to_save;
  std::shared_ptr<distributed::Group> group;
  std::unique_ptr<device::Memory> memory;
};

/// Returns and throws as start_ranks() and Group::connect() do; nullopt: continue with `rank`.
std::optional<int> connect_ranks(train::JobConfig& job, std::span<char* const> arguments,
                                 ConnectedRank& rank);

}  // namespace brim::cli
