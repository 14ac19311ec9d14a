// The simulated GPU as LibTorch sees a CUDA device: its guard, with streams and events, and its
// hooks.
#include "tests/simulated_gpu/device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/streams.h"

namespace brim::simulated {
namespace {

std::atomic<c10::DeviceIndex> device_index = 0;

using SharedMoment = std::shared_ptr<const Moment>;

const SharedMoment& moment_of(void* event) { return *static_cast<SharedMoment*>(event); }

c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(), id); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  c10::Stream getStream(c10::Device) const override { return stream_of(current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return stream_of(next_stream());
  }
  c10::Stream getNewStream(c10::Device, int) const override { return stream_of(next_stream()); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream_of(std::exchange(current_stream(), next.id()));
  }
  bool queryStream(const c10::Stream& used) const override { return stream(used.id()).is_idle(); }
  void synchronizeStream(const c10::Stream& used) const override {
    stream(used.id()).synchronize();
  }
  void synchronizeDevice(c10::DeviceIndex) const override { synchronize_all(); }

  void record(void** event, const c10::Stream& on, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new SharedMoment();
    *static_cast<SharedMoment*>(*event) = stream(on.id()).record();
  }
  void block(void* event, const c10::Stream& waiting) const override {
    if (event != nullptr) stream(waiting.id()).wait_for(moment_of(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || moment_of(event)->is_past();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) moment_of(event)->wait();
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    TORCH_CHECK(queryEvent(first) && queryEvent(second),
                "Both events must be completed before calculating elapsed time.");
    const std::chrono::duration<double, std::milli> between =
        moment_of(second)->time() - moment_of(first)->time();
    return between.count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<SharedMoment*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& used) const override {
    use_on_stream(pointer, used.id());
  }
};

/// LibTorch looks for this name.
struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceIndex current_device() const override { return device_index; }
  c10::DeviceIndex getCurrentDevice() const override { return device_index; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return device_index; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return device_index; }
  void deviceSynchronize(c10::DeviceIndex) const override { synchronize_all(); }
  bool isPinnedPtr(const void* data) const override { return pinned_block(data) != nullptr; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_memory(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return device_memory(); }
  c10::Device getDeviceFromPtr(void*) const override { return device(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return generator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace

c10::Device device() { return {c10::DeviceType::CUDA, device_index}; }

int device_count() {
  static const char* const text = std::getenv("BRIM_SIMULATED_GPUS");
  return text == nullptr ? 1 : std::stoi(text);
}

void set_device(int index) { device_index = static_cast<c10::DeviceIndex>(index); }

const at::Generator& generator() {
  static auto* const result = new at::Generator(at::make_generator<at::CPUGeneratorImpl>());
  return *result;
}

void register_device() {
  static Guard guard;
  static const c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CUDA, &guard);
  c10::SetAllocator(c10::DeviceType::CUDA, device_memory());
}

}  // namespace brim::simulated
