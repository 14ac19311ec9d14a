// Where a job's memory goes: for people who run out of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace brim::telemetry {

struct ModuleBytes {
  std::string module;  // "layer1.0.conv1"; "input" before the first one
  int64_t bytes = 0;
};

struct MemoryAccount {
  int64_t parameters_bytes = 0;  // buffers included
  int64_t gradients_bytes = 0;   // once a backward pass has made them; with several ranks they
                                 // lie in the buckets that are summed
  int64_t optimizer_bytes = 0;
  int64_t ema_bytes = 0;
  int64_t checkpoint_bytes = 0;  // the copy that is being written, where it lies in this memory
  int64_t peak_bytes = 0;        // most that tensors held, all of the above included
  int64_t outside_bytes = 0;     // beside tensors, of the limit
  int64_t limit_bytes = 0;       // what the job may take
  std::vector<ModuleBytes> modules = {};       // that held most of the rest, largest first
  std::vector<int64_t> stage_peak_bytes = {};  // peak_bytes of a pipeline's stages

  /// The rest of the peak: activations, and what operators need while they run.
  int64_t activations_bytes() const;
  /// "parameters 90 MiB, gradients 90 MiB, optimizer 180 MiB": all that is known without a pass.
  std::string state_text() const;
  /// "parameters 90 MiB, …, activations and workspace 1.2 GiB (with gradients 1.3 GiB, most in
  /// layer1.0.conv1 12 MiB, …); the job may take 2 GiB".
  std::string text() const;
  /// text() as a line, and a line for each of the modules.
  std::string table() const;
};

/// "parameters_bytes", …, "modules": [{"module", "bytes"}]; with stages "stage_peak_bytes".
nlohmann::json to_json(const MemoryAccount& account);
/// What to_json() gave; nullopt where it is something else.
std::optional<MemoryAccount> read_memory_account(const nlohmann::json& json);

}  // namespace brim::telemetry
