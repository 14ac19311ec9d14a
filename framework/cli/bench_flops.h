// What a bench says of its models' work: operations a step, and the device's peak beside them.
#pragma once

#include "framework/experiment/bench/bench.h"

namespace brim::cli {

/// Adds "flops_per_sample", "peak_flops" (a second, of all ranks' devices) and "peak_source" to
/// each variant's job, after the runs, so that nothing of this falls into what they measure. A
/// variant whose model can't be looked at is left without, and a warning says why.
void add_model_metrics(experiment::BenchResult& result);

}  // namespace brim::cli
