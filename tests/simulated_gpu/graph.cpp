#include "tests/simulated_gpu/graph.h"

#include <ATen/ATen.h>

#include <mutex>

#include "framework/cuda/launch.cuh"
#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/streams.h"

// Of tests/cuda/emulation.h, which is for kernels: it takes nvcc's words away.
namespace brim::cuda::emulation {
void run(const Launch& at, const std::function<void()>& body);
extern void (*launcher)(const Launch& at, const std::function<void()>& body);
}  // namespace brim::cuda::emulation

namespace brim::simulated {
namespace {

std::vector<Work>* open_tape = nullptr;

/// This thread works on the stream while it lives, in the order of the one that it came from.
class InOrderOn {
 public:
  explicit InOrderOn(c10::StreamId id) : outer_(current_stream()) {
    stream(id).wait_for(stream(outer_).record());
    current_stream() = id;
  }
  ~InOrderOn() {
    stream(outer_).wait_for(stream(current_stream()).record());
    current_stream() = outer_;
  }
  InOrderOn(const InOrderOn&) = delete;
  InOrderOn& operator=(const InOrderOn&) = delete;

 private:
  c10::StreamId outer_;
};

class Recording final : public device::Recording {
 public:
  /// The work is done once, for its shapes; then memory and generator are as before.
  explicit Recording(const Work& work) : pool_(make_pool()) {
    const MemorySnapshot before;
    const at::Tensor numbers = generator().get_state();
    open_tape = &work_;
    fill_pool(pool_);
    const auto close = [&] {
      fill_pool(nullptr);
      open_tape = nullptr;
      before.restore();
      at::Generator own = generator();
      own.set_state(numbers);
    };
    try {
      work();
    } catch (...) {
      close();
      throw;
    }
    close();
  }

  void launch() override {
    Stream& queue = stream(current_stream());
    queue.synchronize();
    for (const Work& work : work_) {
      work();
      queue.synchronize();  // some of it is only enqueued
    }
  }

 private:
  std::shared_ptr<MemoryPool> pool_;
  std::vector<Work> work_;
};

class GraphRecorder final : public device::GraphRecorder {
 public:
  void run(const Work& work) override {
    const InOrderOn own(stream_);
    work();
  }
  void hand_over(const at::Tensor& tensor) override {
    use_on_stream(tensor.storage().data_ptr(), current_stream());
  }
  std::unique_ptr<device::Recording> record(const Work& work) override {
    synchronize_all();
    const InOrderOn own(stream_);
    return std::make_unique<Recording>(work);
  }

 private:
  c10::StreamId stream_ = next_stream();
};

}  // namespace

std::vector<Work>* tape() { return open_tape; }

void take_launches() {
  cuda::emulation::launcher = [](const cuda::Launch& at, const Work& kernel) {
    const Work work = [at, kernel] {
      static std::mutex one_at_a_time;
      const std::lock_guard lock(one_at_a_time);
      cuda::emulation::run(at, kernel);
    };
    if (open_tape != nullptr) open_tape->push_back(work);
    stream(current_stream()).enqueue(work);
    if (open_tape != nullptr) stream(current_stream()).synchronize();
  };
}

std::unique_ptr<device::GraphRecorder> make_graph_recorder() {
  return std::make_unique<GraphRecorder>();
}

}  // namespace brim::simulated
