// A loop over independent pieces of work on a few threads of its own, for start-up and tools; the
// samples of a training run are the loader's.
#pragma once

#include <cstdint>
#include <functional>

namespace brim {

/// Calls body(0) … body(count - 1), each once, on at most `threads` threads, and returns when all
/// are done. What a call throws is thrown here, that of the lowest index; calls that haven't begun
/// by then are left out.
void parallel_for(int64_t count, int64_t threads, const std::function<void(int64_t)>& body);

}  // namespace brim
