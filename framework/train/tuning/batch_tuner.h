// [batch] micro = "auto": finds the largest micro-batch that is safe by real training steps of a
// model that is thrown away afterwards, on synthetic samples of the data's shape. The job that
// follows is the one that has that size written in its recipe.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "framework/device/memory/memory.h"
#include "framework/distributed/group.h"
#include "framework/train/job.h"
#include "framework/train/observe/memory_account.h"
#include "framework/train/tuning/prober.h"
#include "framework/tune/batch_search.h"

namespace brim::train {

struct Tuning {
  int64_t micro = 0;            // what the job is to take
  tune::SearchResult search;    // its size is the largest that fits
  MemoryAccount account = {};   // of this rank, at the last size that fitted
  bool has_statistics = false;  // the size is part of what is learned (components.h)
  double seconds = 0;
  bool was_known = false;                     // from an earlier job; verified by one probe
  std::optional<Recomputed> recomputed = {};  // where that was asked for
};

struct TuneOptions {
  bool is_fresh = false;  // whatever an earlier job has found
  bool explains = false;  // also probes what train.recompute saves and costs
};

/// What an earlier job like it found is taken where one probe confirms it, unless it is to be
/// fresh. Every rank calls it, with a job whose data can be opened, and gets the same micro-batch.
/// `job` is changed while it runs and as it was afterwards, as are LibTorch's generators. Throws
/// Error: kResource with the account of memory where not even one sample fits, and what building
/// the job throws.
Tuning tune_batch(JobConfig& job, c10::Device device,
                  const std::shared_ptr<distributed::Group>& group, device::Memory& memory,
                  const TuneOptions& how = {});

/// Writes what was found into the job of `world` ranks.
void take(const Tuning& tuning, int64_t world, JobConfig& job);

/// For run.json and `trainer tune --json`: "micro", "probes", "memory", "seconds", "was_known".
nlohmann::json to_json(const Tuning& tuning);

/// A table of the probes and what came of them, for people. The cap is the device's; `job` has
/// taken the result.
std::string report(const Tuning& tuning, const JobConfig& job, int64_t world);

}  // namespace brim::train
