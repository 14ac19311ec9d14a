// What a recipe's model is and takes, found by running a small batch of synthetic samples forward
// on the CPU: for `trainer recipe show --summary` and for the metrics of `trainer bench`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/telemetry/memory_account.h"
#include "framework/train/job.h"

namespace brim::train {

struct ModelSummary {
  int64_t parameters = 0;
  int64_t trained_parameters = 0;
  int64_t forward_flops = 0;     // of a sample, as nn::FlopCounter counts
  int64_t activation_bytes = 0;  // that a sample's forward pass keeps for backward
  int64_t once_bytes = 0;  // that a pass keeps whatever its samples, such as weights cast to bf16
  std::vector<telemetry::ModuleBytes> modules = {};  // activation bytes of a sample, largest first

  /// Of a sample, forward and backward.
  int64_t training_flops() const;
};

/// Opens the job's training data for their shape only. Changes the job meanwhile. Throws what
/// opening the data and building the model throw.
ModelSummary summarise(JobConfig& job);

/// The summary as a few lines for people.
std::string to_text(const ModelSummary& summary);

/// Operations a second, and where the number is from.
struct Peak {
  double flops = 0.0;
  std::string source;
};

/// Of a device's matrix products in "bf16", "fp16", "tf32", "fp32" or "fp64": from the table of
/// GPUs where `gpu` names one there, else the best of a few products measured on the first GPU, or
/// on this CPU where `gpu` is empty, which takes about a second. flops is 0 where neither can be.
Peak peak_of(const std::string& gpu, const std::string& format);

}  // namespace brim::train
