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
#include "framework/distributed/strategy.h"
#include "framework/train/run/history.h"
#include "framework/train/tasks/task.h"

namespace brim::data {
class Dataset;
}
namespace brim::optim {
class Ema;
}

namespace brim::train {

struct JobConfig;
struct RankModel;
struct RunFolder;
struct TrainingComponents;

struct TrainState {
  int64_t step = 0;                        // finished steps, skipped ones included
  bool evaluation_due = false;             // the evaluation after this step has not been done
  std::optional<Score> best;               // best evaluation so far, by Task::best_by()
  distributed::BucketLayout buckets = {};  // of the sums of gradients; empty for a single rank
  std::vector<std::string> classes = {};   // by label, printable; empty where the data name none
  History history = {};                    // up to this step
};

/// The state as the live tensors and JSON; what is split over the ranks goes straight to the disk.
/// Every rank calls it, rank 0 with the store, and rank 0's is complete.
checkpoint::Snapshot snapshot(const JobConfig& job, const TrainingComponents& components,
                              const TrainState& state, checkpoint::Store* store);

/// Loads a checkpoint into `components`, to resume its run. A gradient scaler of which it says
/// nothing starts afresh, and what it says of one that is not used any more is left out. Throws
/// Error(kCheckpoint) where it is damaged, or of a job with another model, optimizer, seed, data
/// size, classes or global batch; `components` may be partly changed then.
TrainState resume(const std::filesystem::path& checkpoint, const JobConfig& job,
                  TrainingComponents& components);

/// Loads a checkpoint's model, and its moving average into `ema` where that is not null, to use
/// them; optimizer and data may be others. Throws Error(kCheckpoint) where it is damaged or of
/// another model.
TrainState load_model(const std::filesystem::path& checkpoint, RankModel& model, optim::Ema* ema);

/// Class names of the data, by label, printable; empty where they have none.
std::vector<std::string> class_names(const data::Dataset& data);

/// Throws Error(kCheckpoint) naming the first label whose name in the training data is not the one
/// that the checkpoint gives it; a checkpoint that gives none agrees with all.
void require_same_classes(const TrainState& state, const data::Dataset& train_data,
                          const std::filesystem::path& checkpoint);

/// A checkpoint's state.json, its tensors left alone. Throws Error(kCheckpoint) where it is no
/// JSON.
nlohmann::json read_state_json(const std::filesystem::path& checkpoint);

/// The global batch of the checkpoint's job. Throws Error(kCheckpoint) where it doesn't say.
int64_t global_batch_of(const std::filesystem::path& checkpoint);

/// What the data fed the model of a checkpoint.
struct LearnedInput {
  nn::ModelShape shape;
  std::vector<std::string> classes;  // as TrainState has them
};

/// Nothing where a Brim before 0.2 wrote the checkpoint. Throws Error(kCheckpoint) where state.json
/// is damaged.
std::optional<LearnedInput> input_of(const std::filesystem::path& checkpoint);

/// Throws Error(kNumeric) naming the first parameter or buffer that holds a value that is not
/// finite, so that such weights never replace a good checkpoint. Waits for the device.
void require_finite_weights(const RankModel& model, const RunFolder& folder);

}  // namespace brim::train
