#include "framework/train/observe/operator_profiler.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "framework/base/error.h"
#include "framework/train/observe/operator_traits.h"
#include "framework/train/observe/parameter_modules.h"

namespace brim::train {

using telemetry::OperatorCalls;
using telemetry::TensorShape;

namespace {

constexpr size_t kShownInputs = 6;
constexpr std::string_view kEngine = "autograd::engine::";  // that calls nodes

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "fp32";
    case at::kDouble:
      return "fp64";
    case at::kHalf:
      return "fp16";
    case at::kBFloat16:
      return "bf16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

/// dtype, number of dimensions, sizes; of one tensor after the other.
using Signature = std::vector<int64_t>;

std::vector<TensorShape> shapes_of(const Signature& signature) {
  std::vector<TensorShape> shapes;
  for (size_t i = 0; i < signature.size();) {
    TensorShape shape{.dtype = dtype_name(static_cast<at::ScalarType>(signature[i])), .sizes = {}};
    const auto first = signature.begin() + static_cast<std::ptrdiff_t>(i + 2);
    shape.sizes.assign(first, first + signature[i + 1]);
    i += 2 + static_cast<size_t>(signature[i + 1]);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

/// A memory and what an operator moves of it.
struct Moved {
  const void* storage;
  int64_t bytes;
};

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

}  // namespace

class OperatorProfiler::Calls {
 public:
  Calls(const torch::nn::Module& model, bool keeps_order)
      : modules_(model), loss_(modules_.names().size()), keeps_order_(keeps_order) {}

  void enter(const at::RecordFunction& call) {
    const int64_t entered_ns = now_ns();
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
    const size_t name = number_of(call);
    frame.traits = &traits_[name];
    signature_.clear();
    if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      enter_node(call.seqNr());
    } else {
      take_inputs(call, frame);
    }
    frame.key = {name, current_module(), number_of(signature_), phase_};
    frame.started_ns = now_ns();
  }

  void leave(const at::RecordFunction& call) {
    const int64_t ended_ns = now_ns();
    const std::lock_guard lock(mutex_);
    if (depth_ == 0) return;  // began before the profile did
    Frame& frame = stack_[--depth_];
    assign_nodes();
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
    const int64_t left_ns = now_ns();
    own_ns_[static_cast<size_t>(frame.key.phase)] +=
        frame.started_ns - frame.entered_ns + left_ns - ended_ns;
    if (caller != nullptr) caller->callees_ns += left_ns - frame.entered_ns;
  }

  void begins(Phase phase) {
    const std::lock_guard lock(mutex_);
    phase_ = phase;
    if (phase != Phase::kForward) return;
    module_ = 0;
    first_node_ = at::sequence_number::peek();
    node_modules_.clear();
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
        if (call.name != full_names_[row.key.name]) {
          throw Error(Exit::kBug, "Kineto saw a call of {} where {} was called", call.name,
                      full_names_[row.key.name]);
        }
        row.self_ns += call.kernels_ns;
      }
    }
  }

  std::vector<OperatorCalls> mean_of(int64_t steps) const {
    const std::lock_guard lock(mutex_);
    const auto count = static_cast<double>(steps);
    std::vector<OperatorCalls> result;
    for (const Row& row : rows_) {
      result.push_back({.name = traits_[row.key.name].name,
                        .module = name_of_module(row.key),
                        .phase = row.key.phase,
                        .inputs = shapes_of(*shapes_[row.key.shapes]),
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
  struct SignatureHash {
    size_t operator()(const Signature& signature) const {
      uint64_t hash = 14695981039346656037U;  // FNV-1a, over whole values
      for (const int64_t value : signature) {
        hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211U;
      }
      return hash;
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

  /// An operator's by the place of its name, which its schema keeps for good; a node's by its name.
  size_t number_of(const at::RecordFunction& call) {
    const std::string_view name = call.name();
    const bool is_node =
        call.scope() == at::RecordScope::BACKWARD_FUNCTION || name.starts_with(kEngine);
    if (const auto known = is_node ? by_name(name) : by_place(call.name())) return *known;
    OperatorTraits traits = traits_of(call);
    if (traits.is_node) {  // such as RECORD_FUNCTION's
      if (const auto known = by_name(name)) return *known;
    }
    full_names_.emplace_back(name);
    const size_t number = traits_.size();
    if (traits.is_node) {
      nodes_[full_names_.back()] = number;
    } else {
      by_place_[call.name()] = number;
    }
    traits_.push_back(std::move(traits));
    return number;
  }
  std::optional<size_t> by_place(const char* name) const {
    const auto found = by_place_.find(name);
    if (found == by_place_.end() || full_names_[found->second] != name) return std::nullopt;
    return found->second;
  }
  std::optional<size_t> by_name(std::string_view name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? std::nullopt : std::optional(found->second);
  }

  size_t number_of(const Signature& signature) {
    const auto [found, is_new] = shape_numbers_.try_emplace(signature, shapes_.size());
    if (is_new) shapes_.push_back(&found->first);
    return found->second;
  }

  size_t row_of(const Key& key) {
    const auto [found, is_new] = row_numbers_.try_emplace(key, rows_.size());
    if (is_new) rows_.push_back({.key = key});
    return found->second;
  }

  size_t current_module() const { return is_in_pass() ? module_ : 0; }
  std::string name_of_module(const Key& key) const {
    if (key.phase != Phase::kForward && key.phase != Phase::kBackward) return "";
    return key.module == loss_ ? "loss" : modules_.names()[key.module];
  }

  bool is_in_pass() const { return phase_ == Phase::kForward || phase_ == Phase::kBackward; }
  /// Also in a second forward pass of what is recomputed.
  bool is_forward() const {
    return phase_ == Phase::kForward || (phase_ == Phase::kBackward && at::GradMode::is_enabled());
  }

  void enter_node(int64_t sequence) {
    const int64_t index = sequence - static_cast<int64_t>(first_node_);
    if (index < 0 || index >= static_cast<int64_t>(node_modules_.size())) return;
    module_ = node_modules_[static_cast<size_t>(index)];
  }

  /// Nodes that were made since the last call belong to the module that is at work.
  void assign_nodes() {
    if (!is_forward()) return;
    const uint64_t next = at::sequence_number::peek();
    if (next > first_node_) node_modules_.resize(next - first_node_, module_);
  }

  void take_inputs(const at::RecordFunction& call, Frame& frame) {
    const OperatorTraits& traits = *frame.traits;
    const auto inputs = call.inputs();
    size_t shown = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_written = i < traits.writes.size() && traits.writes[i];
      const int64_t times = is_written && traits.reads_what_it_writes ? 2 : 1;
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor, bool is_listed) {
        if (is_in_pass()) {
          if (const auto module = modules_.module_of(tensor)) module_ = *module;
        }
        const int64_t bytes = bytes_of(tensor);
        if (bytes > 0 && !traits.moves_nothing) {
          frame.inputs.push_back({tensor.storage().unsafeGetStorageImpl(), times * bytes});
        }
        if (is_listed || ++shown > kShownInputs) return;
        signature_.push_back(static_cast<int64_t>(tensor.scalar_type()));
        signature_.push_back(tensor.dim());
        const auto sizes = tensor.sizes();
        signature_.insert(signature_.end(), sizes.begin(), sizes.end());
      });
    }
    if (traits.takes_targets && phase_ == Phase::kForward) module_ = loss_;
    assign_nodes();
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
  const ParameterModules modules_;
  const size_t loss_;  // the number of what follows the model
  const bool keeps_order_;
  std::map<uint64_t, std::vector<size_t>> order_;  // rows of calls as they began, by thread
  Phase phase_ = Phase::kOther;
  size_t module_ = 0;
  uint64_t first_node_ = 0;           // of this pass, by autograd's sequence number
  std::vector<size_t> node_modules_;  // by sequence number, from it on

  std::vector<Frame> stack_;  // its memory is kept
  size_t depth_ = 0;
  Signature signature_;

  std::deque<OperatorTraits> traits_;   // frames refer to them
  std::deque<std::string> full_names_;  // nodes_ does
  std::unordered_map<const char*, size_t> by_place_;
  std::unordered_map<std::string_view, size_t> nodes_;
  std::unordered_map<Signature, size_t, SignatureHash> shape_numbers_;
  std::vector<const Signature*> shapes_;
  std::unordered_map<Key, size_t, KeyHash> row_numbers_;
  std::vector<Row> rows_;
  std::array<int64_t, kPhaseCount> own_ns_{};
};

struct OperatorProfiler::Installed {
  explicit Installed(Calls& calls) {
    Calls* none = nullptr;
    if (!current().compare_exchange_strong(none, &calls)) {
      throw Error(Exit::kBug, "one OperatorProfiler runs in another");
    }
    handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&enter, &leave)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~Installed() {
    at::removeCallback(handle);
    current() = nullptr;
  }
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;

  /// Callbacks carry no state.
  static std::atomic<Calls*>& current() {
    static std::atomic<Calls*> calls = nullptr;
    return calls;
  }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
    if (Calls* calls = current()) calls->enter(call);
    return nullptr;
  }
  static void leave(const at::RecordFunction& call, at::ObserverContext* /*context*/) {
    if (Calls* calls = current()) calls->leave(call);
  }

  at::CallbackHandle handle = 0;
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
