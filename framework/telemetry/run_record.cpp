#include "framework/telemetry/run_record.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "framework/base/units.h"

namespace brim::telemetry {
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::array kVariables = {
    "OMP_NUM_THREADS",      "MKL_NUM_THREADS",
    "KMP_AFFINITY",         "GOMP_CPU_AFFINITY",
    "LD_PRELOAD",           "MALLOC_CONF",
    "ONEDNN_MAX_CPU_ISA",   "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",    "CUBLAS_WORKSPACE_CONFIG",
    "NCCL_DEBUG",           "NCCL_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",      "RANK",
    "LOCAL_RANK",           "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",     "MASTER_ADDR",
    "MASTER_PORT",          "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "SLURM_JOB_ID",
    "SLURM_PROCID",         "SLURM_NTASKS",
    "SLURM_NODELIST",
};

/// What follows `key` and a separator in the first line that begins with it.
std::string value_in_file(const fs::path& path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    if (begin != std::string::npos && end >= begin) return line.substr(begin, end - begin + 1);
  }
  return "unknown";
}

int64_t cores_available() {
  // A machine may have more cores than cpu_set_t has bits; the kernel then refuses with EINVAL.
  for (int bits = 1024; bits <= (1 << 20); bits *= 4) {
    cpu_set_t* set = CPU_ALLOC(bits);
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
  return ::sysconf(_SC_NPROCESSORS_ONLN);
}

/// The number in a one-line file such as memory.max; -1 for "max" or no file. Version 1 writes
/// "no limit" as a number close to 2^63.
int64_t limit_in_file(const fs::path& path) {
  std::string text;
  std::ifstream(path) >> text;
  int64_t value = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  return parsed.ec == std::errc() && value >= 0 && value < kNoLimit ? value : -1;
}

int64_t smaller_limit(int64_t a, int64_t b) {
  if (a < 0) return b;
  return b < 0 ? a : std::min(a, b);
}

}  // namespace

std::string brim_version() { return BRIM_VERSION; }
std::string brim_commit() { return BRIM_COMMIT; }

int64_t cgroup_memory_limit_bytes(const fs::path& root) {
  int64_t limit = -1;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "0::/user.slice/x" in version 2, "9:memory:/user.slice/x" in version 1.
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find(",memory,") == std::string::npos) continue;
    const fs::path mount = root / (is_v2 ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    const char* file = is_v2 ? "memory.max" : "memory.limit_in_bytes";
    // A container's own group is often mounted at the top, under another name than it has outside.
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      limit = smaller_limit(limit, limit_in_file(mount / group / file));
      if (group.empty()) break;
    }
  }
  return limit;
}

json machine_record() {
  utsname kernel{};
  ::uname(&kernel);
  const int64_t limit = cgroup_memory_limit_bytes();
  return {
      {"host", kernel.nodename},
      {"os", value_in_file("/etc/os-release", "PRETTY_NAME", '=')},
      {"kernel", std::string(kernel.sysname) + " " + kernel.release},
      {"cpu", value_in_file("/proc/cpuinfo", "model name", ':')},
      {"cores", cores_available()},
      {"memory_bytes", int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE)},
      {"memory_limit_bytes", limit < 0 ? json(nullptr) : json(limit)},
  };
}

json run_record(const RunRecord& run) {
  json environment = json::object();
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  std::error_code no_folder;
  return {
      {"versions",
       {{"brim", brim_version()}, {"commit", brim_commit()}, {"libtorch", run.libtorch}}},
      {"machine", machine_record()},
      {"device", run.device},
      {"started", timestamp()},
      {"command", run.command},
      {"working_folder", fs::current_path(no_folder).string()},
      {"environment", environment},
      {"seed", run.seed},
      {"ranks", run.ranks},
      {"launch", run.launch},
      {"process", ::getpid()},
  };
}

}  // namespace brim::telemetry
