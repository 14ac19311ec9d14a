// run.json: what must be known to understand a run later, or to make it again: versions, hardware,
// environment, seed, command. The recipe itself is saved beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace brim::telemetry {

/// Bytes of a run.json or recipe.toml, at most: a run's own are far smaller.
inline constexpr int64_t kLongestRunFile = 16 << 20;

/// The machine as this process sees it: "host", "os", "kernel", "cpu", "cores" (that this process
/// may run on), "memory_bytes", "memory_limit_bytes" (of its cgroup; null: none). What can't be
/// found out is "unknown" or null.
nlohmann::json machine_record();

struct RunRecord {
  std::vector<std::string> command;              // argv
  std::map<std::string, std::string> libraries;  // versions of LibTorch and what it uses, by name
  std::string device;                            // "cpu", "cuda:0"
  int64_t seed = 0;
  int64_t ranks = 1;
  std::string launch = "";  // names the launch; a restarted one finds its run by it
};

/// All of run.json: machine_record() as "machine", "versions", "command", "working_folder",
/// "started", "user", "environment" (the variables that steer threads, devices and ranks, where
/// set), "device", "seed", "ranks", "launch", "process".
nlohmann::json run_record(const RunRecord& run);

/// Adds an entry to a run.json, or replaces it. A file that isn't there or is damaged is left as it
/// is. Throws Error(kResource) where it can't be read or written.
void add_to_record(const std::filesystem::path& path, const std::string& key, nlohmann::json value);

}  // namespace brim::telemetry
