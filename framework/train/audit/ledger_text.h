// An audit of samples for people and for scripts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/train/audit/ledger.h"
#include "framework/train/audit/sample_record.h"

namespace brim::train {

struct SampleAudit {
  std::filesystem::path checkpoint;
  SampleRecord record;
  bool is_permutation = true;  // the order gives each sample once an epoch
  Ledger ledger;
  std::vector<RepeatedSteps> repeated;
  int64_t logged_step = 0;  // the last in metrics.jsonl
  std::optional<int64_t> sample = {};
  std::optional<int64_t> step = {};
  std::vector<SeenSample> of_step = {};

  /// Steps whose process kept no history.
  int64_t unrecorded_steps() const;
  /// Whether each epoch is known to have seen each sample exactly once, as far as its steps went.
  bool is_proven() const;
};

/// Some lines, each with its newline; names from files as they are.
std::string describe(const SampleAudit& audit);

/// Epochs count from 0, as in metrics.jsonl; steps from 1.
nlohmann::json to_json(const SampleAudit& audit);

}  // namespace brim::train
