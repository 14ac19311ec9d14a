// Caps what PyTorch's tensors may hold on the CPU, for peers that find batch sizes: preloaded, it
// fails those posix_memalign() calls that come from libc10 and would go over CAP_TENSORS_BYTES.
// PyTorch then says "DefaultCPUAllocator: can't allocate memory", as where memory is really out.
// Blocks under 64 KiB are not counted.
#include <dlfcn.h>
#include <malloc.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace {

constexpr size_t kCounted = 1 << 16;

std::mutex mutex;
size_t held = 0;

std::unordered_map<void*, size_t>& blocks() {
  static auto* map = new std::unordered_map<void*, size_t>;
  return *map;
}

size_t cap() {
  static const char* text = std::getenv("CAP_TENSORS_BYTES");
  static const size_t bytes = text == nullptr ? SIZE_MAX : std::strtoull(text, nullptr, 10);
  return bytes;
}

bool is_of_libc10(void* caller) {
  Dl_info info = {};
  return dladdr(caller, &info) != 0 && std::strstr(info.dli_fname, "libc10.so") != nullptr;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int posix_memalign(void** block, size_t alignment, size_t bytes) {
  static const auto real = next<int (*)(void**, size_t, size_t)>("posix_memalign");
  if (bytes < kCounted || !is_of_libc10(__builtin_return_address(0))) {
    return real(block, alignment, bytes);
  }
  const std::lock_guard lock(mutex);
  if (held + bytes > cap()) return ENOMEM;
  const int status = real(block, alignment, bytes);
  if (status != 0) return status;
  held += bytes;
  blocks()[*block] = bytes;
  return 0;
}

extern "C" void free(void* block) {
  static const auto real = next<void (*)(void*)>("free");
  if (block != nullptr && malloc_usable_size(block) >= kCounted) {
    const std::lock_guard lock(mutex);
    const auto found = blocks().find(block);
    if (found != blocks().end()) {
      held -= found->second;
      blocks().erase(found);
    }
  }
  real(block);
}
