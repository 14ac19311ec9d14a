#include "framework/train/observe/operator_profiler.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "framework/base/error.h"
#include "framework/train/observe/call_recorder.h"
#include "framework/train/observe/module_at_work.h"
#include "framework/train/observe/operator_numbers.h"
#include "framework/train/observe/operator_traits.h"

namespace brim::train {

using telemetry::OperatorCalls;

namespace {

constexpr size_t kShownInputs = 6;

template <class Each>
void for_each_tensor(const c10::IValue& value, Each each) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) each(value.toTensor(), /*is_listed=*/false);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) each(tensor, /*is_listed=*/true);
    }
  }
}

}  // namespace

class OperatorProfiler::Calls {
 public:
  Calls(const torch::nn::Module& model, bool keeps_order)
      : module_(model), keeps_order_(keeps_order) {}

  static constexpr bool kNeedsTensors = true;

  void enter(const at::RecordFunction& call) {
    const int64_t entered_ns = clock_ns();
    const std::lock_guard lock(mutex_);
    if (depth_ == stack_.size()) stack_.emplace_back();
    Frame& frame = stack_[depth_++];
    reset(frame);
    frame.entered_ns = entered_ns;
    if (keeps_order_) {
      frame.order = &order_[at::RecordFunction::currentThreadId()];
      frame.place = frame.order->size();
      frame.order->emplace_back();
    }
    const size_t name = operators_.number_of(call);
    frame.traits = &operators_.traits(name);
    shapes_.clear();
    if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      module_.enter_node(call.seqNr());
    } else {
      take_inputs(call, frame);
    }
    frame.key = {name, module_.number(), shapes_.number(), module_.phase()};
    frame.started_ns = clock_ns();
  }

  void leave(const at::RecordFunction& call) {
    const int64_t ended_ns = clock_ns();
    const std::lock_guard lock(mutex_);
    if (depth_ == 0) return;  // began before the profile did
    Frame& frame = stack_[--depth_];
    module_.assign_nodes();
    Frame* caller = depth_ > 0 ? &stack_[depth_ - 1] : nullptr;
    const size_t index = row_of(frame.key);
    if (frame.order != nullptr) frame.order->at(frame.place) = index;
    const int64_t self_ns = ended_ns - frame.started_ns - frame.callees_ns;
    Row& row = rows_[index];
    row.calls += 1;
    row.self_ns += self_ns;
    row.bytes += moved_bytes(call, frame, caller);
    if (self_ns > frame.longest_ns) {
      frame.longest_ns = self_ns;
      frame.longest_row = index;
    }
    if (frame.flops > 0 && !frame.is_counted) {
      // Where the work is done: aten::convolution leaves it to aten::mkldnn_convolution.
      if (!row.worker) row.worker = frame.longest_row;
      rows_[*row.worker].flops += frame.flops;
    }
    if (caller != nullptr && frame.longest_ns > caller->longest_ns) {
      caller->longest_ns = frame.longest_ns;
      caller->longest_row = frame.longest_row;
    }
    const int64_t left_ns = clock_ns();
    own_ns_[static_cast<size_t>(frame.key.phase)] +=
        frame.started_ns - frame.entered_ns + left_ns - ended_ns;
    if (caller != nullptr) caller->callees_ns += left_ns - frame.entered_ns;
  }

  void begins(Phase phase) {
    const std::lock_guard lock(mutex_);
    module_.begins(phase);
  }

  void take_device_times(const DeviceCalls& device) {
    const std::lock_guard lock(mutex_);
    for (Row& row : rows_) row.self_ns = 0;
    for (const auto& [thread, rows] : order_) {
      const auto found = device.find(thread);
      const size_t seen = found == device.end() ? 0 : found->second.size();
      if (seen != rows.size()) {
        throw Error(Exit::kBug, "Kineto saw {} calls of operators on a thread that made {}", seen,
                    rows.size());
      }
      for (size_t i = 0; i < rows.size(); ++i) {
        Row& row = rows_[rows[i]];
        const DeviceCall& call = found->second[i];
        if (call.name != operators_.full_name(row.key.name)) {
          throw Error(Exit::kBug, "Kineto saw a call of {} where {} was called", call.name,
                      operators_.full_name(row.key.name));
        }
        row.self_ns += call.kernels_ns;
      }
    }
  }

  std::vector<ExpectedCall> order() const {
    const std::lock_guard lock(mutex_);
    if (order_.size() != 1) return {};
    std::vector<ExpectedCall> result;
    for (const size_t row : order_.begin()->second) {
      const Key& key = rows_[row].key;
      result.push_back({operators_.full_name(key.name), key.phase});
    }
    return result;
  }

  void take_times(const StepTimes& times) {
    const std::lock_guard lock(mutex_);
    for (Row& row : rows_) row.self_ns = 0;
    const std::vector<size_t>& rows = order_.begin()->second;
    for (size_t i = 0; i < rows.size(); ++i) rows_[rows[i]].self_ns += times.self_ns[i];
    own_ns_ = times.recorder_ns;
  }

  std::vector<OperatorCalls> mean_of(int64_t steps) const {
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<double>(steps);
    std::vector<OperatorCalls> result;
    for (const Row& row : rows_) {
      result.push_back({.name = operators_.traits(row.key.name).name,
                        .module = module_.name_of(row.key.module, row.key.phase),
                        .phase = row.key.phase,
                        .inputs = shapes_.shapes(row.key.shapes),
                        .calls = static_cast<double>(row.calls) / count,
                        .self_s = 1e-9 * static_cast<double>(row.self_ns) / count,
                        .flops = static_cast<double>(row.flops) / count,
                        .bytes = static_cast<double>(row.bytes) / count});
    }
    std::ranges::stable_sort(result, std::greater<>{}, &OperatorCalls::self_s);
    return result;
  }

  std::array<double, kPhaseCount> own_s(int64_t steps) const {
    const std::lock_guard lock(mutex_);
    std::array<double, kPhaseCount> result{};
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = 1e-9 * static_cast<double>(own_ns_[i]) / static_cast<double>(steps);
    }
    return result;
  }

 private:
  /// A memory and what an operator moves of it.
  struct Moved {
    const void* storage;
    int64_t bytes;
  };

  /// What rows are told apart by.
  struct Key {
    size_t name, module, shapes;
    Phase phase;
    bool operator==(const Key&) const = default;
  };

  /// A call that has begun.
  struct Frame {
    const OperatorTraits* traits = nullptr;
    Key key = {};
    int64_t entered_ns = 0, started_ns = 0;
    int64_t callees_ns = 0;  // of operators that it called, measuring included
    int64_t flops = 0;
    bool is_counted = false;  // by a callee, whose product it is
    std::vector<Moved> inputs, outputs;
    std::vector<const void*> moved_by_callees;
    int64_t longest_ns = -1;  // own time of the longest callee's row
    size_t longest_row = 0;
    std::vector<size_t>* order = nullptr;  // of its thread's calls, where that is kept
    size_t place = 0;                      // among them
  };

  struct Row {
    Key key;
    int64_t calls = 0, self_ns = 0, flops = 0, bytes = 0;
    std::optional<size_t> worker = {};  // the row that its products are done in
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      uint64_t hash = static_cast<uint64_t>(key.phase);
      for (const size_t part : {key.name, key.module, key.shapes}) {
        hash = (hash ^ part) * 1099511628211U;
      }
      return hash ^ (hash >> 32U);
    }
  };

  static void reset(Frame& frame) {
    frame.callees_ns = frame.flops = 0;
    frame.is_counted = false;
    frame.inputs.clear();
    frame.outputs.clear();
    frame.moved_by_callees.clear();
    frame.longest_ns = -1;
  }

  size_t row_of(const Key& key) {
    const auto [found, is_new] = row_numbers_.try_emplace(key, rows_.size());
    if (is_new) rows_.push_back({.key = key});
    return found->second;
  }

  void take_inputs(const at::RecordFunction& call, Frame& frame) {
    const OperatorTraits& traits = *frame.traits;
    const auto inputs = call.inputs();
    size_t shown = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_written = i < traits.writes.size() && traits.writes[i];
      const int64_t times = is_written && traits.reads_what_it_writes ? 2 : 1;
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor, bool is_listed) {
        module_.reads(tensor);
        const int64_t bytes = bytes_of(tensor);
        if (bytes > 0 && !traits.moves_nothing) {
          frame.inputs.push_back({tensor.storage().unsafeGetStorageImpl(), times * bytes});
        }
        if (!is_listed && ++shown <= kShownInputs) shapes_.add(tensor);
      });
    }
    if (traits.takes_targets) module_.takes_targets();
    module_.assign_nodes();
    if (traits.flops != nullptr) frame.flops = traits.flops(inputs);
  }

  /// Of tensors that no callee has moved; tells the caller which those of the call are.
  int64_t moved_bytes(const at::RecordFunction& call, Frame& frame, Frame* caller) {
    const OperatorTraits& traits = *frame.traits;
    if (!traits.moves_nothing) take_outputs(call, frame);
    // A node has no tensors of its own.
    const bool is_told = caller != nullptr && !caller->traits->is_node;
    int64_t bytes = 0;
    const auto add = [&](const Moved& moved) {
      if (std::ranges::find(frame.moved_by_callees, moved.storage) !=
          frame.moved_by_callees.end()) {
        return;
      }
      bytes += moved.bytes;
      if (is_told) caller->moved_by_callees.push_back(moved.storage);
    };
    int64_t written = 0;
    for (const Moved& moved : frame.outputs) written += moved.bytes;
    for (size_t i = 0; i < frame.inputs.size(); ++i) {
      Moved moved = frame.inputs[i];
      if (traits.gathers && i == 0) moved.bytes = std::min(moved.bytes, written);
      add(moved);
    }
    for (const Moved& moved : frame.outputs) add(moved);
    if (is_told) {
      caller->moved_by_callees.insert(caller->moved_by_callees.end(),
                                      frame.moved_by_callees.begin(), frame.moved_by_callees.end());
      caller->is_counted |= frame.is_counted || frame.flops > 0;
    }
    return bytes;
  }

  static void take_outputs(const at::RecordFunction& call, Frame& frame) {
    for (const c10::IValue& output : call.outputs()) {
      for_each_tensor(output, [&](const at::Tensor& tensor, bool) {
        const int64_t bytes = bytes_of(tensor);
        if (bytes == 0) return;
        const void* storage = tensor.storage().unsafeGetStorageImpl();
        const bool is_input = std::ranges::any_of(
            frame.inputs, [&](const Moved& input) { return input.storage == storage; });
        if (!is_input) frame.outputs.push_back({storage, bytes});
      });
    }
  }

  mutable std::mutex mutex_;  // backward on a GPU has a thread of its own
  ModuleAtWork module_;
  OperatorNumbers operators_;
  ShapeNumbers shapes_;
  const bool keeps_order_;
  std::map<uint64_t, std::vector<size_t>> order_;  // rows of calls as they began, by thread
  std::vector<Frame> stack_;                       // its memory is kept
  size_t depth_ = 0;
  std::unordered_map<Key, size_t, KeyHash> row_numbers_;
  std::vector<Row> rows_;
  std::array<int64_t, kPhaseCount> own_ns_{};
};

struct OperatorProfiler::Installed {
  explicit Installed(Calls& calls) : recorder(calls) {}
  CallRecorder<Calls> recorder;
};

OperatorProfiler::OperatorProfiler(const torch::nn::Module& model, Timeline& timeline,
                                   bool keeps_order)
    : timeline_(timeline),
      calls_(std::make_unique<Calls>(model, keeps_order)),
      installed_(std::make_unique<Installed>(*calls_)) {
  timeline_.observe(*this);
}

OperatorProfiler::~OperatorProfiler() { timeline_.forget(*this); }

void OperatorProfiler::begins(Phase phase) { calls_->begins(phase); }

void OperatorProfiler::stop() { installed_.reset(); }

std::vector<ExpectedCall> OperatorProfiler::order() const { return calls_->order(); }

void OperatorProfiler::take_times(const StepTimes& times) { calls_->take_times(times); }

void OperatorProfiler::take_device_times(const DeviceCalls& calls) {
  calls_->take_device_times(calls);
}

std::vector<OperatorCalls> OperatorProfiler::mean_of(int64_t steps) const {
  return calls_->mean_of(steps);
}

std::array<double, kPhaseCount> OperatorProfiler::own_s(int64_t steps) const {
  return calls_->own_s(steps);
}

}  // namespace brim::train
