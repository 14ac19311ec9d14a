// What is known of how a run went: the metrics that rules judge by. What the run did not record is
// absent, never zero.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/base/timeline.h"

namespace brim::experiment {
struct RunData;
}

namespace brim::doctor {

/// Seconds a step; the run's first line, which holds the warm-up, is left out of shares.
struct PhaseFacts {
  double share = 0.0;  // of the wall time
  double p50_s = 0.0;
  double p95_s = 0.0;
};

/// A metric's spread over the run.
struct Spread {
  double mean = 0.0;
  double p5 = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
};

struct RunFacts {
  int64_t steps = 0;
  std::optional<double> seconds = {};  // of those steps

  // Of the time line.
  std::optional<std::array<PhaseFacts, kPhaseCount>> phases = {};
  /// Of the wall time, what decoding beside the steps takes from them: they share the cores. 0 on a
  /// GPU.
  double decode_share = 0.0;
  double decode_load = 0.0;  // of the time of a rank's cores, what decoding beside the steps takes
  std::optional<Spread> step_s = {};
  /// Samples a second that the step would take if data cost nothing, and that it gets.
  /// Evaluations and checkpoints are not counted.
  std::optional<double> wanted_per_s = {}, given_per_s = {};

  // Of the device.
  std::optional<bool> is_cuda = {};
  std::optional<Spread> busy_percent = {};  // utilisation
  std::optional<double> peak_bytes = {}, cap_bytes = {};
  std::optional<double> host_syncs = {};      // a step
  std::optional<double> slowed_share = {};    // of the time, by heat or power
  std::optional<bool> has_matrix_units = {};  // tensor cores, AMX: fast below fp32

  // Of the job.
  std::string model = {};      // model.name
  std::string precision = {};  // "fp32", "bf16", …; "": not recorded
  std::optional<bool> has_convolutions = {}, is_channels_last = {};
  std::optional<int64_t> micro_batch = {}, global_batch = {}, ranks = {}, cores = {};
  std::optional<int64_t> threads = {};      // that a rank's operators use on a CPU
  std::optional<bool> has_cuda_graph = {};  // train.cuda_graph
  std::optional<int64_t> workers = {};      // loader threads
  bool workers_are_auto = true;
  bool is_deterministic = false;         // run.deterministic
  std::string data_kind = {};            // data.kind
  std::optional<int64_t> prefetch = {};  // data.prefetch
  std::optional<bool> fast_decode = {};  // data.fast_decode; nullopt: this kind of data has none
  std::string decode = {};               // data.decode; "": this kind of data has none
  std::string cache = {};                // data.cache; "": this kind of data has none
  std::string balance = {};              // distributed.balance
  std::optional<int64_t> stages = {};    // distributed.stages
  bool has_given_cut = false;            // distributed.cut
  bool has_passes_alone = false;         // ranks need nothing of each other within a pass
  std::string compress = {};
  std::string optimizer = {}, batch_rule = {};   // optimizer.name, optimizer.batch_rule
  std::optional<int64_t> metrics_every = {};     // telemetry.every_steps
  std::optional<int64_t> histograms_every = {};  // telemetry.histograms_every_steps; 0: none

  // Of the ranks.
  std::optional<double> slowest_rank_ratio = {};  // its own time to the median of the others
  std::optional<double> slowest_to_rank_0 = {};   // the same to rank 0's, whose phases these are
  std::optional<int64_t> slowest_rank = {};
  std::string slowest_place = {};  // where that runs, "cuda:1 on gpu03"; "": not recorded
  std::optional<double> largest_share_ratio = {};  // samples of the rank with most to the mean

  // Of the machine.
  std::optional<double> swapped_bytes = {};
  std::optional<double> major_faults_per_s = {};
  std::optional<double> load_per_core = {};       // threads that run or want to, on the machine
  std::optional<double> io_stalled_percent = {};  // of the time, some thread waits for a disk

  double share(Phase phase) const {
    return phases ? (*phases)[static_cast<size_t>(phase)].share : 0;
  }
  /// Of the wall time, what data costs: waits for it, and decoding on the step's own cores.
  double data_share() const { return share(Phase::kDataWait) + decode_share; }
  /// Of the wall time, what is neither evaluation nor checkpoint.
  double training_share() const {
    return 1 - share(Phase::kEvaluation) - share(Phase::kCheckpoint);
  }
  /// forward, backward and optimizer together.
  double compute_share() const;
};

/// The facts of a run. A recipe that can't be read leaves its facts absent.
RunFacts facts_of(const experiment::RunData& run);

}  // namespace brim::doctor
