// How often the host waits for a GPU within steps: LibTorch warns of each time, and this counts
// instead of printing.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "framework/device/cuda_backend.h"

namespace brim::train {

/// Belongs to the thread that drives the step.
class HostSyncs final : public c10::WarningHandler {
 public:
  /// On the CPU nothing is counted.
  explicit HostSyncs(c10::Device device) : is_on_gpu_(device.is_cuda()) {}

  /// Counts while it lives. A sync that is an error already (SyncDebugMode::kError) stays one.
  class Watch {
   public:
    explicit Watch(HostSyncs& syncs);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    std::optional<c10::WarningUtils::WarningHandlerGuard> guard_;
    device::SyncDebugMode before_ = device::SyncDebugMode::kOff;
  };

  /// Since the last take().
  int64_t take() { return std::exchange(count_, 0); }

  /// Other warnings go where they would have gone.
  void process(const c10::Warning& warning) override;

 private:
  const bool is_on_gpu_;
  c10::WarningHandler* others_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace brim::train
