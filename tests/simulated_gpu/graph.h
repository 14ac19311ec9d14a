// Work of the simulated GPU that is recorded and done again.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/device/graph_recorder.h"

namespace brim::simulated {

using Work = std::function<void()>;

/// What is being recorded, in any thread; null: nothing.
std::vector<Work>* tape();

/// Emulated kernels run on the current stream, and are recorded.
void take_launches();

std::unique_ptr<device::GraphRecorder> make_graph_recorder();

}  // namespace brim::simulated
