// Work that is given to a device once and then again as a whole, at the cost of one launch: a CUDA
// graph. The CUDA half makes recorders (cuda_backend.h); who uses one knows nothing of CUDA.
#pragma once

#include <functional>
#include <memory>

namespace at {
class Tensor;
}

namespace brim::device {

/// Reads and writes the memory that its work did when it was recorded.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Gives the work to the current stream. Random numbers are drawn from where the generator is
  /// now, and leave it as the work itself would.
  virtual void launch() = 0;
};

/// Belongs to the thread that made it, as do its recordings, which may outlive it.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;

  /// Does the work now, on the stream that records: after all that the current stream was given
  /// before, and before all that it is given later. What is to be recorded is done so a few times,
  /// for libraries choose their algorithms and allocate then, which no recording can hold.
  virtual void run(const std::function<void()>& work) = 0;
  /// A tensor that run()'s work has made is used on the current stream.
  virtual void hand_over(const at::Tensor& tensor) = 0;

  /// Records what `work` gives the device, which itself does nothing of it; memory that is cached
  /// is given back first. Tensors that `work` leaves alive are the recording's to write to. All
  /// that it frees may be another recording's too, so no two may be under way at once.
  /// Throws what `work` throws, or LibTorch's error where the work can't be recorded, say because
  /// it waits for the device; then device and generators are as before.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
};

}  // namespace brim::device
