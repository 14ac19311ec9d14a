#include "framework/train/observe/module_memory.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "framework/nn/measured_forms.h"
#include "framework/train/observe/parameter_modules.h"

namespace brim::train {

using telemetry::ModuleBytes;

namespace {

constexpr auto kPlace = c10::DebugInfoKind::PROFILER_STATE;

}  // namespace

class ModuleMemory::Observer final : public c10::MemoryReportingInfoBase {
 public:
  Observer(const torch::nn::Module& model, c10::Device device)
      : device_(device), modules_(model), live_(modules_.names().size()) {}

  /// An operator that reads `tensor` is about to run.
  void reads(const at::Tensor& tensor) {
    const auto module = modules_.module_of(tensor);
    if (!module) return;
    const std::lock_guard lock(mutex_);
    current_ = *module;
  }

  void reportMemoryUsage(void* block, int64_t bytes, size_t /*total_allocated*/,
                         size_t /*total_reserved*/, c10::Device device) override {
    if (device.type() != device_.type()) return;
    const std::lock_guard lock(mutex_);
    bytes > 0 ? add(block, bytes) : remove(block);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::vector<ModuleBytes> at_peak() const {
    const std::lock_guard lock(mutex_);
    return by_size(at_peak_);
  }
  std::vector<ModuleBytes> now() const {
    const std::lock_guard lock(mutex_);
    return by_size(live_);
  }

 private:
  struct Block {
    size_t module;
    int64_t bytes;
  };

  std::vector<ModuleBytes> by_size(const std::vector<int64_t>& bytes) const {
    std::vector<ModuleBytes> result;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] > 0) result.push_back({modules_.names()[i], bytes[i]});
    }
    std::sort(result.begin(), result.end(),
              [](const ModuleBytes& a, const ModuleBytes& b) { return a.bytes > b.bytes; });
    return result;
  }

  void add(void* block, int64_t bytes) {
    if (nn::is_measuring_forms()) return;
    blocks_[block] = {current_, bytes};
    live_[current_] += bytes;
    total_ += bytes;
    if (total_ <= peak_) return;
    peak_ = total_;
    at_peak_ = live_;
  }

  void remove(void* block) {
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return;  // older than this
    live_[found->second.module] -= found->second.bytes;
    total_ -= found->second.bytes;
    blocks_.erase(found);
  }

  c10::Device device_;
  ParameterModules modules_;

  mutable std::mutex mutex_;  // backward on a GPU has a thread of its own
  size_t current_ = 0;
  std::unordered_map<void*, Block> blocks_;
  std::vector<int64_t> live_, at_peak_;  // by module
  int64_t total_ = 0;
  int64_t peak_ = 0;
};

struct ModuleMemory::Installed {
  explicit Installed(const std::shared_ptr<Observer>& observer)
      : guard(kPlace, observer),
        handle(at::addThreadLocalCallback(at::RecordFunctionCallback(&on_operator)
                                              .needsInputs(true)
                                              .scopes({at::RecordScope::FUNCTION}))) {}
  ~Installed() { at::removeCallback(handle); }
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;

  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& call) {
    auto* observer = dynamic_cast<Observer*>(c10::ThreadLocalDebugInfo::get(kPlace));
    if (observer == nullptr) return nullptr;
    for (const c10::IValue& input : call.inputs()) {
      if (input.isTensor() && input.toTensor().defined()) observer->reads(input.toTensor());
    }
    return nullptr;
  }

  c10::DebugInfoGuard guard;
  at::CallbackHandle handle;
};

ModuleMemory::ModuleMemory(const torch::nn::Module& model, c10::Device device)
    : observer_(std::make_shared<Observer>(model, device)) {
  if (c10::ThreadLocalDebugInfo::get(kPlace) != nullptr) return;
  installed_ = std::make_unique<Installed>(observer_);
}

ModuleMemory::~ModuleMemory() = default;

std::vector<ModuleBytes> ModuleMemory::largest(size_t count) const {
  std::vector<ModuleBytes> result = observer_->at_peak();
  if (result.size() > count) result.resize(count);
  return result;
}

std::vector<ModuleBytes> ModuleMemory::held() const { return observer_->now(); }

}  // namespace brim::train
