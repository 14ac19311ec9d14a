// A run of the past: whose it was, what came of it, and where the hours of its devices went.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/doctor/diagnosis.h"
#include "framework/experiment/run_data.h"

namespace brim::history {

/// What a device did while a run held it. Waits for a straggler count as communication.
enum class Cause {
  kCompute,  // forward, backward, optimizer, transforms on the device
  kData,     // waits for data and copies; on a CPU also decoding that takes the step's cores
  kCommunication,
  kCheckpoint,
  kEvaluation,
  kOther,
  kIdle  // held outside the steps: start-up, batch tuning, steps that a crash lost
};
inline constexpr size_t kCauseCount = 7;
inline constexpr std::array<std::string_view, kCauseCount> kCauseNames = {
    "compute", "data", "communication", "checkpoint", "evaluation", "other", "idle while held"};

/// Hours of one device by Cause: those of several ranks together.
struct Hours {
  std::array<double, kCauseCount> by_cause{};

  double of(Cause cause) const { return by_cause[static_cast<size_t>(cause)]; }
  double total() const;
  Hours& operator+=(const Hours& other);
};

struct PastRun {
  std::filesystem::path folder;
  std::string name;                       // its folder below the one that was searched
  std::string started;                    // of its first part, as run.json has it
  int64_t started_unix_s = 0;             // 0: not recorded
  std::string user, host, model, device;  // "": not recorded
  int64_t ranks = 1;                      // of its last part
  int64_t steps = 0;
  std::string metric_name = {};              // "top1", "loss"; "": no evaluation
  double metric = 0;                         // the best of its evaluations
  std::optional<double> samples_per_s = {};  // median
  std::optional<double> busy_percent = {};   // of the GPU, mean
  std::optional<double> energy_kwh = {};     // of the GPUs: rank 0's power for each
  Hours hours = {};
  std::vector<doctor::NamedFinding> findings = {};  // worst first; none of a run that is too short
};

/// What a run has recorded. Throws Error(kData) where that is beyond reason.
PastRun past_run_of(const experiment::RunData& run, std::string name);

/// A folder that holds a run, and its name below the folder that was searched; "" for that itself.
struct RunFolder {
  std::filesystem::path folder;
  std::string name;
};

struct RunFolders {
  std::vector<RunFolder> runs;               // by their names
  std::vector<std::filesystem::path> links;  // to runs: they are not followed
};

/// The runs in a folder and below it. Throws Error(kData) where the folder is not there, and
/// Error(kStopped) after a stop.
RunFolders find_run_folders(const std::filesystem::path& folder);

/// What the runs in a folder and below it say, those of sweeps too, newest first. A run that can't
/// be read is left out with a warning. Throws Error(kData) where the folder is not there, and
/// Error(kStopped) after a stop.
std::vector<PastRun> find_runs(const std::filesystem::path& folder);

}  // namespace brim::history
