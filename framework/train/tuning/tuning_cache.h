// Tuned micro-batches of earlier jobs, so that the same job on the same device is tuned by one
// step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/device/memory/memory.h"
#include "framework/train/job.h"

namespace brim::train {

/// What a tuned size depends on, as text: model, input, precision, optimizer, ranks, device, limit
/// of memory (in steps of 5 %), versions.
std::string tuning_key(JobConfig& job, const std::string& input, c10::Device device, int64_t global,
                       int64_t world, const device::Memory& memory);

class TuningCache {
 public:
  /// In `folder`; empty: nothing is remembered.
  explicit TuningCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The micro-batch of that key. A file that can't be read is as good as none.
  std::optional<int64_t> find(const std::string& key) const;
  /// Without a word where it can't be written: the next job tunes again.
  void remember(const std::string& key, int64_t micro) const;

 private:
  std::filesystem::path file(const std::string& key) const;
  std::filesystem::path folder_;
};

}  // namespace brim::train
