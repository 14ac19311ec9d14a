#include "framework/telemetry/run_record.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/machine.h"
#include "framework/base/units.h"
#include "framework/base/user.h"
#include "framework/base/version.h"
#include "framework/base/wrapper.h"

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

}  // namespace

json machine_record() {
  utsname kernel{};
  ::uname(&kernel);
  const Machine machine;
  const std::optional<int64_t> limit = machine.memory_limit_bytes();
  return {
      {"host", kernel.nodename},
      {"os", value_in_file("/etc/os-release", "PRETTY_NAME", '=')},
      {"kernel", std::string(kernel.sysname) + " " + kernel.release},
      {"cpu", value_in_file("/proc/cpuinfo", "model name", ':')},
      {"cores", machine.allowed_cores()},
      {"memory_bytes", machine.memory_bytes()},
      {"memory_limit_bytes", limit ? json(*limit) : json(nullptr)},
  };
}

json run_record(const RunRecord& run) {
  json environment = json::object();
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  std::vector<std::string> command = run.command;
  if (!command.empty()) command[0] = wrapper_of(command[0]).string();
  json versions = run.libraries;
  versions.update({{"brim", brim_version()}, {"commit", brim_commit()}});
  std::error_code no_folder;
  return {
      {"versions", std::move(versions)},
      {"machine", machine_record()},
      {"device", run.device},
      {"started", timestamp()},
      {"user", user_name(::geteuid())},
      {"command", std::move(command)},
      {"working_folder", fs::current_path(no_folder).string()},
      {"environment", environment},
      {"seed", run.seed},
      {"ranks", run.ranks},
      {"launch", run.launch},
      {"process", ::getpid()},
  };
}

void add_to_record(const fs::path& path, const std::string& key, json value) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  json record = json::parse(read_file(path, Exit::kResource, kLongestRunFile), nullptr,
                            /*allow_exceptions=*/false);
  if (!record.is_object()) return;
  record[key] = std::move(value);
  write_file(path, record.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace brim::telemetry
