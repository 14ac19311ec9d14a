#include "framework/train/observe/host_syncs.h"

#include "framework/device/cuda_loader.h"

namespace brim::train {
namespace {

constexpr std::string_view kMark = "called a synchronizing CUDA operation";  // in LibTorch's words

}  // namespace

HostSyncs::Watch::Watch(HostSyncs& syncs) {
  syncs.others_ = c10::WarningUtils::get_warning_handler();
  if (!syncs.is_on_gpu_) return;
  const device::CudaBackend& backend = *device::cuda().backend;
  before_ = backend.sync_debug_mode();
  if (before_ != device::SyncDebugMode::kOff) return;
  guard_.emplace(&syncs);
  backend.set_sync_debug_mode(device::SyncDebugMode::kWarn);
}

HostSyncs::Watch::~Watch() {
  if (guard_) device::cuda().backend->set_sync_debug_mode(before_);
}

void HostSyncs::process(const c10::Warning& warning) {
  if (warning.msg().find(kMark) != std::string::npos) {
    ++count_;
  } else if (others_ != nullptr) {
    others_->process(warning);
  }
}

}  // namespace brim::train
