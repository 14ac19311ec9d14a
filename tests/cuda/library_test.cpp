#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>

#include <cstring>
#include <set>
#include <string>

#include "framework/base/files.h"
#include "framework/data/transfer/transform_images.h"
#include "framework/device/cuda_backend.h"
#include "framework/device/cuda_loader.h"

namespace brim::cuda {
namespace {

template <class T>
T read_at(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

/// "sm_90" for machine code, "compute_90" for PTX, as the headers in section .nv_fatbin say.
/// A fat binary is a header {u32 magic, u16 version, u16 header size, u64 size}, then entries
/// {u16 kind, u16, u32 header size, u64 size, …, u32 architecture at byte 28}.
std::set<std::string> code_in(std::span<const std::byte> fatbin) {
  std::set<std::string> found;
  constexpr uint32_t kMagic = 0xBA55ED50;
  for (size_t at = 0; at + 16 <= fatbin.size(); at += 8) {
    if (read_at<uint32_t>(fatbin, at) != kMagic) continue;
    size_t entry = at + read_at<uint16_t>(fatbin, at + 6);
    const size_t end = entry + read_at<uint64_t>(fatbin, at + 8);
    while (entry < end) {
      const bool is_ptx = read_at<uint16_t>(fatbin, entry) == 1;
      found.insert((is_ptx ? "compute_" : "sm_") +
                   std::to_string(read_at<uint32_t>(fatbin, entry + 28)));
      entry += read_at<uint32_t>(fatbin, entry + 4) + read_at<uint64_t>(fatbin, entry + 8);
    }
  }
  return found;
}

std::span<const std::byte> section(std::span<const std::byte> elf, const std::string& name) {
  const auto header = read_at<Elf64_Ehdr>(elf, 0);
  const auto table = [&](size_t i) {
    return read_at<Elf64_Shdr>(elf, header.e_shoff + i * header.e_shentsize);
  };
  const Elf64_Shdr names = table(header.e_shstrndx);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr entry = table(i);
    const auto* text = reinterpret_cast<const char*>(&elf[names.sh_offset + entry.sh_name]);
    if (name == text) return elf.subspan(entry.sh_offset, entry.sh_size);
  }
  return {};
}

TEST(CudaLibrary, CarriesCodeForTheGpusPromised) {
  const MappedFile library(BRIM_CUDA_LIBRARY, Exit::kBug);
  EXPECT_THAT(code_in(section(library.bytes(), ".nv_fatbin")),
              testing::IsSupersetOf({"sm_75", "sm_80", "sm_90", "compute_90"}));
}

TEST(CudaLibrary, LoadsWithoutADriverAndAddsItsKernels) {
  // Called, so that it is linked, and the operator with it.
  data::transform_images(at::zeros({1, 1, 1, 1}, at::kByte), at::ones({1}), at::zeros({1}),
                         std::nullopt, /*channels_last=*/true);
  const auto operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("brim::transform_images", "");
  void* library = dlopen(BRIM_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_TRUE(operation.hasKernelForDispatchKey(c10::DispatchKey::CUDA));
  EXPECT_TRUE(operation.hasKernelForDispatchKey(c10::DispatchKey::CPU));
  EXPECT_NE(dlsym(library, "brim_cuda_backend"), nullptr);
}

TEST(CudaLoad, SaysWhyNotOrCountsDevices) {
  const device::CudaLoad& load = device::cuda();
  if (load.backend == nullptr) {
    EXPECT_THAT(load.why_not, testing::HasSubstr("driver"));
  } else {
    EXPECT_GE(load.backend->device_count(), 1);
  }
  EXPECT_EQ(&device::cuda(), &load) << "loaded once";
}

}  // namespace
}  // namespace brim::cuda
