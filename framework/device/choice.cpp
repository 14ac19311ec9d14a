#include "framework/device/choice.h"

#include <charconv>
#include <string>

#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/device/cuda_loader.h"
#include "framework/device/gpus/device_list.h"

namespace brim::device {
namespace {

using Kind = DeviceList::Kind;

/// The number of the CUDA device that this rank is to have: of a list of several, the first.
int wanted(const DeviceConfig& config, const DeviceList& list, int64_t local_rank,
           int64_t local_world) {
  if (list.kind != Kind::kGpus) return static_cast<int>(local_rank);
  int index = -1;
  const std::string& word = list.gpus[0];
  std::from_chars(word.data(), word.data() + word.size(), index);
  if (index < 0) {
    throw Error(Exit::kRecipe,
                "device '{}': expected \"auto\", \"cpu\", or one GPU's index as in \"0\" or "
                "\"cuda:0\" here",
                config.select);
  }
  if (local_world > 1) {
    throw Error(Exit::kRecipe,
                "device '{}': {} ranks run on this machine, and each needs a GPU of its own: leave "
                "device.select to \"auto\", and choose GPUs by CUDA_VISIBLE_DEVICES",
                config.select, local_world);
  }
  return index;
}

}  // namespace

c10::Device choose_device(const DeviceConfig& config, int64_t local_rank, int64_t local_world) {
  const DeviceList list = parse_device_list(config.select);
  if (list.kind == Kind::kCpu) return c10::kCPU;
  if (list.kind == Kind::kAuto && cuda().backend == nullptr) return c10::kCPU;
  const int index = wanted(config, list, local_rank, local_world);
  const CudaLoad& load = cuda();
  if (load.backend == nullptr && config.fallback == Fallback::kCpu) {
    log::warning("device '{}' is not there: {}; training on the CPU (device.fallback = \"cpu\")",
                 config.select, load.why_not);
    return c10::kCPU;
  }
  if (load.backend == nullptr) {
    throw Error(Exit::kResource,
                "device '{}' is not there: {}. Use --devices cpu, or leave the choice to \"auto\"",
                config.select, load.why_not);
  }
  const int count = load.backend->device_count();
  if (list.kind != Kind::kGpus && index >= count) {
    throw Error(
        Exit::kResource,
        "{} ranks run on this machine, and this process sees {} GPU{} (CUDA_VISIBLE_DEVICES "
        "decides which): start as many ranks as there are GPUs",
        local_world, count, count == 1 ? "" : "s");
  }
  if (index >= count) {
    throw Error(
        Exit::kResource,
        "device '{}' is not there: this process sees {} GPU{} (CUDA_VISIBLE_DEVICES decides "
        "which). Choose one from 0 to {}",
        config.select, count, count == 1 ? "" : "s", count - 1);
  }
  load.backend->set_device(index);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace brim::device
