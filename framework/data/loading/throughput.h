// How fast a dataset gives its samples, and what bounds it: for `trainer data bench`.
#pragma once

#include <array>
#include <cstdint>

#include "framework/data/dataset.h"
#include "framework/data/loading/stages.h"
#include "framework/data/order/plan.h"

namespace brim::data {

struct Throughput {
  int64_t samples = 0;
  double samples_per_s = 0;
  double cpu_s_per_sample = 0;  // of the whole process
};

/// Loads batches as training would, first for `warmup` samples, then for at least `samples` more.
Throughput measure_loader(const Dataset& dataset, const LoaderOptions& options, int64_t warmup,
                          int64_t samples);

/// Seconds a sample by Stage, on one thread, over `samples` samples in training's order; none for
/// kCopy.
std::array<double, kStageCount> measure_stages(const Dataset& dataset, const LoaderOptions& options,
                                               int64_t samples);

}  // namespace brim::data
