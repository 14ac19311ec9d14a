// NCCL between simulated GPUs: what Brim uses of it, over Gloo.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace brim::simulated {

/// A collective runs on a stream of the communicator, late, after what the current stream was given
/// before, and the current stream waits for it in wait(); messages between two ranks have a stream
/// of their own. One whose peer is gone never ends, until abort().
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int world, std::chrono::milliseconds limit);

}  // namespace brim::simulated
