// A job made ready for probes of its batch: on synthetic samples of the data's shape, with nothing
// that depends on which samples they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/train/job.h"

namespace brim::train {

/// What the data feeds a model, how much of it, and whether there is evaluation.
struct DataShape {
  nn::ModelShape input;
  int64_t sample_bytes = 0;
  int64_t samples = 0;
  int64_t cache_bytes = 0;   // what the data keep in memory, at most
  int64_t eval_samples = 0;  // 0: no evaluation
  bool has_evaluation() const { return eval_samples > 0; }
};

/// Throws what input_shape() throws, and what opening the data throws.
DataShape shape_of(const JobConfig& job);

/// Changes the job while this lives; afterwards it is as it was.
class ProbeJob {
 public:
  ProbeJob(JobConfig& job, const DataShape& shape);
  ~ProbeJob();
  ProbeJob(const ProbeJob&) = delete;
  ProbeJob& operator=(const ProbeJob&) = delete;

  /// Whether the recipe lets the global batch grow.
  bool grows() const { return !batch_.global; }
  void set_recompute(std::vector<std::string> patterns) {
    job_.train.recompute = std::move(patterns);
  }
  /// The recipe's.
  const std::vector<std::string>& recompute() const { return recompute_; }
  /// Steps of so many micro-batches of `size`, for each of `parts`: the ranks, or pipelines of
  /// them, that see samples of their own.
  void set_size(int64_t size, int64_t micro_batches, int64_t parts);

 private:
  JobConfig& job_;
  DataShape shape_;
  recipe::Slot<data::SourceConfig> source_;
  std::filesystem::path pretrained_;  // weights are as large whatever they are
  data::SamplerSection sampler_;
  ScheduleSection schedule_;  // laid out for the run's length, which two steps are not
  BatchConfig batch_;
  std::optional<int64_t> steps_;
  std::vector<std::string> recompute_;
  bool cuda_graph_;
  distributed::DistributedConfig distributed_;
  std::optional<int64_t> workers_;
};

}  // namespace brim::train
