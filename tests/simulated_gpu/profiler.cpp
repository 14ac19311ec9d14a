// Events of LibTorch's profiler on the simulated GPU.
#include <torch/csrc/profiler/stubs/base.h>

#include "tests/simulated_gpu/device.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

const Moment& moment_of(const ProfilerVoidEventStub* event) {
  return *static_cast<const Moment*>(event->get());
}

class ProfilerStubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device != nullptr) *device = 0;
    if (cpu_ns != nullptr) *cpu_ns = c10::getTime();
    *event = std::const_pointer_cast<Moment>(stream(current_stream()).record());
  }
  float elapsed(const ProfilerVoidEventStub* first,
                const ProfilerVoidEventStub* second) const override {
    moment_of(first).wait();
    moment_of(second).wait();
    const std::chrono::duration<float, std::micro> between =
        moment_of(second).time() - moment_of(first).time();
    return between.count();
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> action) const override { action(0); }
  void synchronize() const override { synchronize_all(); }
};

}  // namespace

void register_profiler() {
  static ProfilerStubs stubs;
  torch::profiler::impl::registerCUDAMethods(&stubs);
}

}  // namespace brim::simulated
