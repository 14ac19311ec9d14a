#include "framework/launch/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace brim::launch {
namespace {

namespace fs = std::filesystem;

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

double ratio(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

/// cgroup v2: "max 100000" or "150000 100000", microseconds.
double quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period ? ratio(quota, period) : kNoQuota;
}

double quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? ratio(quota, period) : kNoQuota;
}

/// The smallest quota of a group and those above it. In a container the path may be the host's,
/// of which only the mount's top is there.
double smallest_quota(const fs::path& mount, const std::string& group,
                      double (*quota)(const fs::path&)) {
  double smallest = quota(mount);
  fs::path path = mount;
  for (const fs::path& part : fs::path(group).relative_path()) {
    path /= part;
    smallest = std::min(smallest, quota(path));
  }
  return smallest;
}

/// Cores' worth of processor time, from the lines HIERARCHY:CONTROLLERS:PATH of /proc/self/cgroup.
double cgroup_quota(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  double smallest = kNoQuota;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string hierarchy;
    std::string controllers;
    std::string group;
    std::getline(fields, hierarchy, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, group);
    const fs::path mounts = root / "sys/fs/cgroup";
    if (controllers.empty()) {
      smallest = std::min(smallest, smallest_quota(mounts, group, quota_v2));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      smallest = std::min(smallest, smallest_quota(mounts / controllers, group, quota_v1));
      smallest = std::min(smallest, smallest_quota(mounts / "cpu", group, quota_v1));
    }
  }
  return smallest;
}

int device_files(const fs::path& folder) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) continue;
    if (name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos) ++count;
  }
  return count;
}

/// Entries of CUDA_VISIBLE_DEVICES; CUDA stops reading at the first that names nothing.
int named_devices(const std::string& list) {
  int count = 0;
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    entry.erase(0, entry.find_first_not_of(' '));
    if (entry.empty() || entry[0] == '-') break;
    ++count;
  }
  return count;
}

}  // namespace

int usable_cores(const fs::path& root) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  // Fails only on machines with more cores than cpu_set_t holds.
  const int allowed =
      sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : CPU_SETSIZE;
  return std::max(1, static_cast<int>(std::min<double>(allowed, std::floor(cgroup_quota(root)))));
}

int visible_gpus(const fs::path& root) {
  const int present = device_files(root / "dev");
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return present;
  // A MIG instance is named, and a GPU may hold several.
  const bool has_slices = std::string_view(list).find("MIG-") != std::string_view::npos;
  const int named = named_devices(list);
  return present == 0 ? 0 : has_slices ? named : std::min(present, named);
}

}  // namespace brim::launch
