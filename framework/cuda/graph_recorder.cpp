#include "framework/cuda/graph_recorder.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <exception>
#include <utility>

#include "framework/cuda/draw_jpegs.h"

namespace brim::cuda {

namespace allocator = c10::cuda::CUDACachingAllocator;

class GraphRecorder::Pool {
 public:
  Pool() : id(at::cuda::graph_pool_handle()) {}
  const at::MempoolId_t id;  // a new one each time: LibTorch takes none again that it has released
};

namespace {

/// `second` continues only after what `first` has been given so far.
void order(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& second) {
  at::cuda::CUDAEvent event;
  event.record(first);
  event.block(second);
}

/// This thread works on `stream` while it lives, in the order of the stream that it came from.
class OnStream {
 public:
  explicit OnStream(const c10::cuda::CUDAStream& stream)
      : outer_(c10::cuda::getCurrentCUDAStream(stream.device_index())), stream_(stream) {
    order(outer_, stream_);
    guard_.reset_stream(stream_);
  }
  ~OnStream() {
    guard_.reset();
    try {
      order(stream_, outer_);
    } catch (const std::exception& error) {
      TORCH_WARN("a stream could not be made to wait for another: ", error.what());
    }
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  c10::cuda::CUDAStream outer_, stream_;
  c10::cuda::OptionalCUDAStreamGuard guard_;
};

/// Runs a part of a clean-up that may have been done already, which it says by throwing.
void attempt(const std::function<void()>& part) {
  try {
    part();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

/// A capture that can't be ended as it should be leaves LibTorch's allocators and its generator in
/// the state of one that continues, where the next random number is refused.
void clean_up(c10::DeviceIndex device, at::MempoolId_t pool) {
  (void)cudaGetLastError();  // of the capture; nothing has run on the device
  attempt([&] {
    allocator::endAllocateToPool(device, pool);
    allocator::releasePool(device, pool);
  });
  attempt([&] {
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool);
    at::getHostAllocator(at::kCUDA)->release_pool(pool);
  });
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(device);
  at::Generator fresh = at::cuda::detail::createCUDAGenerator(device);
  fresh.set_state(generator.get_state());
  generator.graphsafe_set_state(fresh.graphsafe_get_state());
}

class Recording final : public device::Recording {
 public:
  Recording(std::shared_ptr<GraphRecorder::Pool> pool, c10::DeviceIndex device)
      : pool_(std::move(pool)), device_(device) {}

  /// The memory goes back to the allocator, which does not know which streams have used it.
  ~Recording() override {
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    graph_.reset();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void capture(const std::function<void()>& work) {
    std::exception_ptr error;
    try {
      // Only this thread keeps from calls that can't be recorded: the loader's threads continue.
      graph_.capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
      work();
    } catch (...) {
      error = std::current_exception();
    }
    try {
      graph_.capture_end();
    } catch (...) {  // where it was never begun, too
      if (!error) error = std::current_exception();
      clean_up(device_, pool_->id);
    }
    if (error) std::rethrow_exception(error);
  }

  void launch() override { graph_.replay(); }

 private:
  std::shared_ptr<GraphRecorder::Pool> pool_;
  c10::DeviceIndex device_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

GraphRecorder::GraphRecorder(c10::DeviceIndex device)
    : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

std::shared_ptr<GraphRecorder::Pool> GraphRecorder::pool() {
  std::shared_ptr<Pool> pool = pool_.lock();
  if (pool == nullptr) {
    pool = std::make_shared<Pool>();
    pool_ = pool;
  }
  return pool;
}

void GraphRecorder::run(const std::function<void()>& work) {
  const OnStream on_stream(stream_);
  work();
}

void GraphRecorder::hand_over(const at::Tensor& tensor) {
  tensor.record_stream(c10::cuda::getCurrentCUDAStream(stream_.device_index()).unwrap());
}

std::unique_ptr<device::Recording> GraphRecorder::record(const std::function<void()>& work) {
  auto recording = std::make_unique<Recording>(pool(), stream_.device_index());
  const WithoutNvJpeg alone;
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  allocator::emptyCache();
  const OnStream on_stream(stream_);
  recording->capture(work);
  return recording;
}

}  // namespace brim::cuda
