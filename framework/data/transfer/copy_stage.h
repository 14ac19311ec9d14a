// How fast loaded batches become tensors on the device: for `trainer data bench`.
#pragma once

#include "framework/data/transfer/prefetcher.h"

namespace brim::data {

/// Seconds a sample, over at least `samples` samples in training's order, from a loaded batch until
/// the device has it copied, normalised and changed as a batch: those of the fastest batch, as
/// other work on the machine only adds. Nothing else of this process runs meanwhile.
double measure_copy(const Dataset& dataset, LoaderOptions loading, const InputOptions& input,
                    at::Device device, int64_t samples);

}  // namespace brim::data
