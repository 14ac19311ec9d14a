#include "framework/device/memory/memory_history.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace brim::device {
namespace {

constexpr size_t kMaxEvents = 100'000;

using Names = std::shared_ptr<const std::vector<std::string>>;  // of operators, innermost first

struct Event {
  bool is_allocation;
  uintptr_t address;
  size_t bytes;
  Names names;
};

struct History {
  std::mutex mutex;
  std::deque<Event> events;                                      // oldest first
  std::unordered_map<uintptr_t, std::pair<size_t, Names>> held;  // made since the start
  std::optional<at::CallbackHandle> operators;
};

std::atomic<bool> is_on = false;

/// Never destroyed: tensors in static variables are freed after main().
History& history() {
  static auto* one = new History;
  return *one;
}

/// The operators that this thread is in, outermost first.
std::vector<std::string>& running() {
  thread_local std::vector<std::string> names;
  return names;
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& call) {
  running().emplace_back(call.name());
  return nullptr;
}

void leave(const at::RecordFunction& /*call*/, at::ObserverContext* /*context*/) {
  if (!running().empty()) running().pop_back();
}

void add(Event event) {
  History& all = history();
  const std::lock_guard lock(all.mutex);
  if (event.is_allocation) {
    all.held[event.address] = {event.bytes, event.names};
  } else if (all.held.erase(event.address) == 0) {
    return;  // older than the history
  }
  if (all.events.size() == kMaxEvents) all.events.pop_front();
  all.events.push_back(std::move(event));
}

using Dict = c10::impl::GenericDict;
using List = c10::impl::GenericList;

Dict new_dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }
List new_list() { return List(c10::AnyType::get()); }

List frames(const Names& names) {
  List result = new_list();
  if (names == nullptr) return result;
  for (const std::string& name : *names) {
    Dict frame = new_dict();
    frame.insert("name", name);
    frame.insert("filename", "");
    frame.insert("line", int64_t{0});
    result.push_back(frame);
  }
  return result;
}

Dict trace_entry(const char* action, const Event& event) {
  Dict entry = new_dict();
  entry.insert("action", action);
  entry.insert("addr", static_cast<int64_t>(event.address));
  entry.insert("size", static_cast<int64_t>(event.bytes));
  entry.insert("stream", int64_t{0});
  entry.insert("frames", frames(event.names));
  return entry;
}

/// A block of ours lies in a segment of its own: how extents are cut is no one's concern here.
Dict segment(uintptr_t address, size_t bytes, const Names& names) {
  Dict block = new_dict();
  block.insert("address", static_cast<int64_t>(address));
  block.insert("size", static_cast<int64_t>(bytes));
  block.insert("requested_size", static_cast<int64_t>(bytes));
  block.insert("state", "active_allocated");
  block.insert("frames", frames(names));
  List blocks = new_list();
  blocks.push_back(block);
  Dict result = new_dict();
  for (const char* key : {"total_size", "allocated_size", "active_size", "requested_size"}) {
    result.insert(key, static_cast<int64_t>(bytes));
  }
  result.insert("device", int64_t{0});
  result.insert("address", static_cast<int64_t>(address));
  result.insert("stream", int64_t{0});
  result.insert("segment_type", "large");
  result.insert("is_expandable", false);
  result.insert("frames", frames(names));
  result.insert("blocks", blocks);
  return result;
}

std::string pickle(const c10::IValue& value) {
  std::string result;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { result.append(data, size); },
                              /*tensor_table=*/nullptr, /*type_renamer=*/nullptr,
                              /*memoized_class_types=*/nullptr, /*get_tensor_id=*/nullptr,
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return result;
}

}  // namespace

void start_memory_history() {
  stop_memory_history();
  History& all = history();
  const std::lock_guard lock(all.mutex);
  all.events.clear();
  all.held.clear();
  all.operators = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&enter, &leave)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
  is_on = true;
}

void stop_memory_history() {
  is_on = false;
  History& all = history();
  const std::lock_guard lock(all.mutex);
  if (all.operators) at::removeCallback(*all.operators);
  all.operators.reset();
  running().clear();
}

void remember_allocation(const void* block, size_t bytes) {
  if (!is_on.load(std::memory_order_relaxed)) return;
  const auto& names = running();
  add({.is_allocation = true,
       .address = reinterpret_cast<uintptr_t>(block),
       .bytes = bytes,
       .names = std::make_shared<std::vector<std::string>>(names.rbegin(), names.rend())});
}

void remember_free(const void* block, size_t bytes) {
  if (!is_on.load(std::memory_order_relaxed)) return;
  add({.is_allocation = false,
       .address = reinterpret_cast<uintptr_t>(block),
       .bytes = bytes,
       .names = nullptr});
}

std::string pickle_memory_history() {
  History& all = history();
  const std::lock_guard lock(all.mutex);
  List trace = new_list(), segments = new_list(), traces = new_list();
  for (const Event& event : all.events) {
    if (event.is_allocation) {
      trace.push_back(trace_entry("alloc", event));
    } else {
      trace.push_back(trace_entry("free_requested", event));
      trace.push_back(trace_entry("free_completed", event));
    }
  }
  for (const auto& [address, block] : all.held) {
    segments.push_back(segment(address, block.first, block.second));
  }
  traces.push_back(trace);
  Dict result = new_dict();
  result.insert("segments", segments);
  result.insert("device_traces", traces);
  result.insert("allocator_settings", new_dict());
  return pickle(result);
}

}  // namespace brim::device
