// device::GraphRecorder by CUDA graphs, after the rules of PyTorch's "CUDA semantics" for capturing
// whole networks.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <memory>

#include "framework/device/graph_recorder.h"

namespace brim::cuda {

class GraphRecorder final : public device::GraphRecorder {
 public:
  explicit GraphRecorder(c10::DeviceIndex device);

  void run(const std::function<void()>& work) override;
  void hand_over(const at::Tensor& tensor) override;
  std::unique_ptr<device::Recording> record(const std::function<void()>& work) override;

  /// Memory of LibTorch's allocator that belongs to recordings alone.
  class Pool;

 private:
  std::shared_ptr<Pool> pool();

  c10::cuda::CUDAStream stream_;  // not the default one, which can't be recorded
  std::weak_ptr<Pool> pool_;      // of the recordings that live
};

}  // namespace brim::cuda
