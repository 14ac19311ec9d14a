#include "framework/device/cuda_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace brim::device {
namespace fs = std::filesystem;
namespace {

constexpr const char* kName = "libbrim_cuda.so";

/// lib/libbrim_cuda.so beside the folder of the program; CMake and scripts/package put it there.
fs::path library_path() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return program.parent_path().parent_path() / "lib" / kName;
}

CudaLoad load() {
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return {nullptr, "no NVIDIA driver was found (libcuda.so.1)"};
  }
  // LibTorch's allocator reads it once: segments that grow leave no holes between batches of
  // different sizes. What the user has set stays.
  if (std::getenv("PYTORCH_ALLOC_CONF") == nullptr) {
    setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  }
  const fs::path path = library_path();
  std::error_code ignored;
  const bool is_there = fs::exists(path, ignored);
  // A program made with an installed Brim lies anywhere: its run path leads to the library.
  void* library = dlopen(is_there ? path.c_str() : kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && !is_there) {
    return {nullptr, "there is a driver, but this build has no CUDA half: " + path.string() +
                         " is missing. Run scripts/setup --cuda and build again"};
  }
  if (library == nullptr)
    return {nullptr, std::string("the CUDA half does not load: ") + dlerror()};
  using Entry = const CudaBackend* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "brim_cuda_backend"));
  if (entry == nullptr) {
    return {nullptr, path.string() + " has no brim_cuda_backend: it is of another build"};
  }
  const CudaBackend* backend = entry();
  if (backend->device_count() == 0) return {nullptr, "the driver shows no device to this process"};
  return {backend, ""};
}

}  // namespace

const CudaLoad& cuda() {
  static const CudaLoad result = load();
  return result;
}

}  // namespace brim::device
