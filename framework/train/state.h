// What a checkpoint holds, beside the files' format: the model, optimizer, scaler, schedule, moving
// average and random state of a run, and how far it is. The position in the data follows from the
// step. Restored on the same device, a run continues as if it had never stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/store.h"
#include "framework/distributed/data_parallel.h"
#include "framework/train/components.h"
#include "framework/train/job.h"
#include "framework/train/run_folder.h"

namespace brim::train {

struct TrainState {
  int64_t step = 0;                        // finished steps, skipped ones included
  bool evaluation_due = false;             // the evaluation after this step has not been done
  std::optional<double> best;              // best evaluation so far, by Task::best_by()
  distributed::BucketLayout buckets = {};  // of the sums of gradients; empty for a single rank
};

/// The state as the live tensors and JSON; what is split over the ranks goes straight to the disk.
/// Every rank calls it, rank 0 with the store, and rank 0's is complete.
checkpoint::Snapshot snapshot(const JobConfig& job, const TrainingComponents& components,
                              const TrainState& state, checkpoint::Store* store);

/// Loads a checkpoint into `components`. A gradient scaler of which it says nothing starts afresh,
/// and what it says of one that is not used any more is left out. Throws Error(kCheckpoint) where
/// it is damaged, or of a job with another model, optimizer, seed, data size or global batch;
/// `components` may be partly changed then.
TrainState restore(const std::filesystem::path& checkpoint, const JobConfig& job,
                   TrainingComponents& components);

/// The global batch of the checkpoint's job. Throws Error(kCheckpoint) where it doesn't say.
int64_t global_batch_of(const std::filesystem::path& checkpoint);

/// Throws Error(kNumeric) naming the first parameter or buffer that holds a value that is not
/// finite, so that such weights never replace a good checkpoint. Waits for the device.
void require_finite_weights(const nn::Model& model, const RunFolder& folder);

}  // namespace brim::train
