// Which samples a run's weights have seen, beside what the order of samples says: how many ranks
// shared a batch, from which step on, and which samples others took the place of. Checkpoints carry
// it, so that it is as old as their weights; audit/ reads it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/data/order/replacement_log.h"

namespace brim::train {

struct JobConfig;

/// The steps of one process of the run, up to where the next part begins.
struct HistoryPart {
  int64_t after_step = 0;  // finished steps of the checkpoint that it began from
  int64_t ranks = 1;       // that see different samples: the replicas of a pipeline
  /// How a batch is split over them: "even"; "pairs", evenly in pairs; or "throughput" and "cost",
  /// which follow measured times and the samples' lengths.
  std::string shares = "even";
  int64_t stages = 1;     // of each of `ranks`, which are pipelines where there are several
  std::string data = {};  // data::digest_of() the training data; empty: a Brim that kept none
};

/// Whether a part's data are known to be others than those of the part before it.
bool are_other_data(const HistoryPart& before, const HistoryPart& part);

struct History {
  std::vector<HistoryPart> parts;           // in order; empty: a Brim that kept none
  std::vector<data::Replacement> replaced;  // of all ranks, by position
  int64_t replaced_left_out = 0;            // beyond the number that is kept

  /// A process begins; parts that reach no step before it are gone.
  void begin(HistoryPart part);
  void add(std::vector<data::Replacement> more);
};

std::string shares_of(const JobConfig& job);

nlohmann::json to_json(const std::vector<data::Replacement>& replaced);
std::vector<data::Replacement> read_replacements(const nlohmann::json& json);

/// As state.json has it; docs/reference/run-folder.md says what is what. Reading throws
/// nlohmann::json::exception where it is damaged.
nlohmann::json to_json(const History& history);
History read_history(const nlohmann::json& json);

}  // namespace brim::train
