#include "framework/cli/connected_rank.h"

namespace brim::cli {

std::optional<int> connect_ranks(train::JobConfig& job, std::span<char* const> arguments,
                                 ConnectedRank& rank) {
  if (const auto status = start_ranks(job.device, job.run.name, arguments, rank.here)) {
    return status;
  }
  rank.nothing_to_save.emplace();
  rank.group = distributed::Group::connect(rank.here.ranks, rank.here.device,
                                           job.distributed.backend, job.distributed.limit());
  rank.memory = device::memory_of(rank.here.device, job.device, rank.group->ranks().local_world);
  return std::nullopt;
}

}  // namespace brim::cli
