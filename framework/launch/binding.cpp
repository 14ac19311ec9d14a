#include "framework/launch/binding.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <tuple>

#include "framework/base/error.h"
#include "framework/base/words.h"

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

int read_int(const fs::path& path, int otherwise) {
  std::ifstream file(path);
  int value = 0;
  return file >> value ? value : otherwise;
}

/// In the order package, core, hardware thread; where /sys says nothing, as numbered.
Cores in_order(Cores cores, const fs::path& root) {
  const auto place = [&root](int core) {
    const fs::path topology =
        root / "sys/devices/system/cpu" / fmt::format("cpu{}", core) / "topology";
    return std::tuple(read_int(topology / "physical_package_id", 0),
                      read_int(topology / "core_id", core), core);
  };
  std::sort(cores.begin(), cores.end(), [&](int a, int b) { return place(a) < place(b); });
  return cores;
}

/// Whether a list such as "0-3,8-11" holds `core`.
bool holds(const std::string& list, int core) {
  for (const std::string_view part : split(list)) {
    int first = -1;
    int last = -1;
    char dash = 0;
    std::istringstream range{std::string(part)};
    range >> first;
    if (!(range >> dash >> last)) last = first;
    if (first <= core && core <= last) return true;
  }
  return false;
}

/// The allowed cores of each NUMA node that has any.
std::vector<Cores> numa_nodes(const Cores& allowed, const fs::path& root) {
  std::vector<std::pair<int, Cores>> nodes;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", problem)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node") || name.find_first_not_of("0123456789", 4) != std::string::npos) {
      continue;
    }
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    Cores cores;
    std::copy_if(allowed.begin(), allowed.end(), std::back_inserter(cores),
                 [&list](int core) { return holds(list, core); });
    if (!cores.empty()) nodes.emplace_back(std::stoi(name.substr(4)), in_order(cores, root));
  }
  std::sort(nodes.begin(), nodes.end());
  std::vector<Cores> result;
  for (auto& [number, cores] : nodes) result.push_back(std::move(cores));
  return result.empty() ? std::vector<Cores>{in_order(allowed, root)} : result;
}

/// Share i of n of a list; sizes differ by at most one.
Cores slice(const Cores& cores, size_t i, size_t n) {
  const auto at = [&](size_t share) {
    return cores.begin() + static_cast<std::ptrdiff_t>(share * (cores.size() / n) +
                                                       std::min(share, cores.size() % n));
  };
  return {at(i), at(i + 1)};
}

Cores numa_share(const std::vector<Cores>& nodes, size_t rank, size_t ranks) {
  if (ranks < nodes.size()) {  // whole nodes
    Cores all;
    for (size_t node = rank * nodes.size() / ranks; node < (rank + 1) * nodes.size() / ranks;
         ++node) {
      all.insert(all.end(), nodes[node].begin(), nodes[node].end());
    }
    return all;
  }
  const size_t node = rank * nodes.size() / ranks;
  const auto first_of = [&](size_t n) { return (n * ranks + nodes.size() - 1) / nodes.size(); };
  return slice(nodes[node], rank - first_of(node), first_of(node + 1) - first_of(node));
}

}  // namespace

Cores allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    throw Error(Exit::kResource,
                "--bind: the kernel doesn't say which cores may be used: {}; use "
                "--bind none",
                errno_text(errno));
  }
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<Cores> bind_ranks(Bind bind, int ranks, const Cores& allowed, const fs::path& root) {
  std::vector<Cores> result(static_cast<size_t>(ranks));
  if (bind == Bind::kNone) return result;
  const std::vector<Cores> nodes =
      bind == Bind::kNuma ? numa_nodes(allowed, root) : std::vector<Cores>{in_order(allowed, root)};
  for (size_t rank = 0; rank < result.size(); ++rank) {
    result[rank] = numa_share(nodes, rank, result.size());
    if (result[rank].empty()) {
      throw UsageError("--bind: {} ranks can't share {} cores; use --bind none", ranks,
                       allowed.size());
    }
  }
  return result;
}

}  // namespace brim::launch
