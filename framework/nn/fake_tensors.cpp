#include "framework/nn/fake_tensors.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

namespace brim::nn {
namespace {

constexpr c10::DispatchKeySet kBelowFake(c10::DispatchKeySet::FULL_AFTER, kFakeKey);

/// In front of a block, which it keeps aligned.
struct alignas(64) Header {
  size_t bytes;  // of the block
};

thread_local OperatorHandler* handler_of_thread = nullptr;
std::atomic<int64_t> held{0}, peak{0};

void report(void* block, int64_t change_bytes) {
  const int64_t now = held += change_bytes;
  int64_t before = peak;
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  c10::reportMemoryUsageToProfiler(block, change_bytes, 0, 0, c10::kCPU);
}

void free_block(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  const size_t bytes = header->bytes;
  report(block, -static_cast<int64_t>(bytes));
  ::munmap(header, sizeof(Header) + bytes);
}

class AddressSpace final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_block, c10::kCPU};
    void* pages = ::mmap(nullptr, sizeof(Header) + bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK_WITH(OutOfMemoryError, pages != MAP_FAILED, "out of address space: a tensor of ",
                     bytes, " bytes");
    ::madvise(pages, sizeof(Header) + bytes, MADV_NOHUGEPAGE);  // the header takes one page
    auto* header = static_cast<Header*>(pages);
    header->bytes = bytes;
    void* block = header + 1;
    report(block, static_cast<int64_t>(bytes));
    return {block, block, &free_block, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

at::Tensor on_meta(const at::Tensor& t) {
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(c10::kMeta));
}

at::Tensor of_address_space(const at::Tensor& t) {
  return at::Tensor(at::detail::empty_strided_generic(t.sizes(), t.strides(), &address_space(),
                                                      c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                      t.scalar_type()));
}

}  // namespace

OperatorHandler* exchange_handler(OperatorHandler* handler) {
  return std::exchange(handler_of_thread, handler);
}

OperatorHandler* current_handler() { return handler_of_thread; }

c10::Allocator& address_space() {
  static auto* allocator = new AddressSpace;  // its tensors may outlive main()
  return *allocator;
}

bool is_touched(const c10::Storage& storage) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(storage.data()) / page * page + page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(storage.data()) + storage.nbytes();
  if (end <= start) return false;
  std::vector<unsigned char> is_resident((end - start + page - 1) / page);
  if (::mincore(reinterpret_cast<void*>(start), end - start, is_resident.data()) != 0) return true;
  return std::ranges::any_of(is_resident, [](unsigned char bits) { return (bits & 1) != 0; });
}

int64_t fake_bytes_held() { return held; }
int64_t fake_bytes_peak() { return peak; }
void reset_fake_bytes_peak() { peak = held.load(); }

bool changes_views(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::inplace_view)) return true;
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

void run_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  op.redispatchBoxed(keys & kBelowFake, &stack);
}

std::vector<c10::IValue> infer_results(const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  const c10::impl::ExcludeDispatchKeyGuard no_inference(kFakeKey);
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_device = op.schema().arguments()[i].name() == "device";
    arguments[i] =
        is_device ? c10::IValue(c10::Device(c10::kMeta)) : map_tensors(arguments[i], on_meta);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &arguments);
  for (c10::IValue& result : arguments) result = map_tensors(result, of_address_space);
  return arguments;
}

}  // namespace brim::nn
