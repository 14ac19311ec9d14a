#include "framework/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "framework/base/machine.h"

namespace brim::launch {
namespace {

using Variables = std::map<std::string, std::string>;

Variables own_environment() {
  Variables result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) result[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return result;
}

int threads_per_rank(const LaunchOptions& options, const Cores& cores) {
  const int total = usable_cores();
  if (cores.empty()) return std::max(1, total / options.ranks_per_node);
  const int most = (total + options.ranks_per_node - 1) / options.ranks_per_node;
  return std::min(static_cast<int>(cores.size()), most);
}

}  // namespace

int global_rank(const LaunchOptions& options, int local_rank) {
  return options.node_rank * options.ranks_per_node + local_rank;
}

std::vector<std::string> worker_environment(const LaunchOptions& options,
                                            const WorkerPlace& place) {
  Variables all = own_environment();
  const std::string rank = std::to_string(global_rank(options, place.local_rank));
  const std::string world = std::to_string(options.nodes * options.ranks_per_node);
  all["RANK"] = all["ROLE_RANK"] = rank;
  all["WORLD_SIZE"] = all["ROLE_WORLD_SIZE"] = world;
  all["LOCAL_RANK"] = std::to_string(place.local_rank);
  all["LOCAL_WORLD_SIZE"] = std::to_string(options.ranks_per_node);
  all["GROUP_RANK"] = std::to_string(options.node_rank);
  all["GROUP_WORLD_SIZE"] = std::to_string(options.nodes);
  all["ROLE_NAME"] = "default";
  all["MASTER_ADDR"] = options.master_addr;
  all["MASTER_PORT"] = std::to_string(place.master_port);
  all["TORCHELASTIC_RESTART_COUNT"] = std::to_string(place.restarts);
  all["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(options.max_restarts);
  all["TORCHELASTIC_RUN_ID"] = place.run_id;
  all["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 hosts the store, not this launcher
  all.erase("BRIM_STORE_FD");
  if (place.store_fd >= 0) all["BRIM_STORE_FD"] = std::to_string(place.store_fd);
  all.erase("TORCHELASTIC_ERROR_FILE");  // of this launcher, where torchrun started it
  if (!place.error_file.empty()) all["TORCHELASTIC_ERROR_FILE"] = place.error_file;
  if (!all.contains("OMP_NUM_THREADS")) {
    all["OMP_NUM_THREADS"] = std::to_string(threads_per_rank(options, place.cores));
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : all) result.push_back(name + "=" + value);
  return result;
}

}  // namespace brim::launch
