#include "framework/device/memory/allocator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "framework/device/memory/block_cache.h"
#include "framework/device/memory/memory.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace brim::device {
namespace {

class CpuAllocator : public ::testing::Test {
 protected:
  void SetUp() override {
    install_cpu_allocator();
    before_ = cpu_memory();
    reset_cpu_peak();
  }
  int64_t held() const { return cpu_memory().allocated_bytes - before_.allocated_bytes; }
  MemoryStats before_;
};

TEST_F(CpuAllocator, CountsTensors) {
  {
    const at::Tensor a = at::ones({1000});
    EXPECT_EQ(held(), 4000);
    const at::Tensor b = a + 1;
    EXPECT_EQ(held(), 8000);
    EXPECT_EQ(b.sum().item<float>(), 2000.0f);
  }
  EXPECT_EQ(held(), 0);
  EXPECT_GE(cpu_memory().peak_bytes - before_.allocated_bytes, 8000);
}

TEST_F(CpuAllocator, AnEmptyTensorTakesNothing) {
  const at::Tensor empty = at::empty({0, 3});
  EXPECT_EQ(held(), 0);
  EXPECT_EQ(empty.data_ptr(), nullptr);
}

TEST_F(CpuAllocator, TensorsGrowByResize) {
  at::Tensor tensor = at::full({10}, 7.0);
  for (const int64_t size : {1000, 100'000, 3'000'000, 5}) {
    tensor.resize_({size});
    EXPECT_EQ(tensor[4].item<float>(), 7.0f) << size;
  }
  tensor.reset();
  EXPECT_EQ(held(), 0);
}

TEST_F(CpuAllocator, ATensorMayBeFreedOnAnotherThread) {
  for (int i = 0; i < 50; ++i) {
    at::Tensor tensor = at::ones({1 + 1000 * i});
    std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  }
  EXPECT_EQ(held(), 0);
}

TEST_F(CpuAllocator, AHugeTensorIsOutOfMemoryAsOnCuda) {
  try {
    at::empty({int64_t{1} << 60}, at::kByte);
    FAIL() << "2^60 bytes were found";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(
        error.what_without_backtrace(),
        ::testing::HasSubstr("out of memory on the host: a tensor asked for 1048576.0 TiB"));
  }
  EXPECT_EQ(at::ones({5}).sum().item<float>(), 5.0f);
}

TEST_F(CpuAllocator, RawMemoryGoesInAndOut) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* raw = allocator->raw_allocate(100);
  EXPECT_EQ(held(), 100);
  std::memset(raw, 5, 100);
  const c10::DataPtr copy = allocator->clone(raw, 100);
  EXPECT_EQ(static_cast<const char*>(copy.get())[99], 5);
  EXPECT_TRUE(allocator->is_simple_data_ptr(copy));
  allocator->raw_deallocate(raw);
  EXPECT_EQ(held(), 100);
}

TEST_F(CpuAllocator, ARepeatedStepReservesNothingNew) {
  const auto step = [] {
    at::Tensor activations = at::ones({64, 784});
    std::vector<at::Tensor> saved;
    for (int layer = 0; layer < 6; ++layer) {
      saved.push_back(activations);
      activations = (activations * 0.5 + 1).relu();
    }
    at::Tensor gradient = at::ones_like(activations);
    while (!saved.empty()) {
      gradient = gradient * 0.5 * saved.back();
      saved.pop_back();
    }
  };
  for (int i = 0; i < 5; ++i) step();
  const int64_t settled = cpu_memory().reserved_bytes;
  for (int i = 0; i < 30; ++i) step();
  EXPECT_EQ(cpu_memory().reserved_bytes, settled);
}

class RecordingProfiler final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t change, size_t allocated, size_t reserved,
                         c10::Device device) override {
    changes.push_back(change);
    if (allocated > reserved || !device.is_cpu()) changes.push_back(-1);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::vector<int64_t> changes;
};

TEST_F(CpuAllocator, LibTorchsMemoryProfilerSeesEveryBlock) {
  const auto profiler = std::make_shared<RecordingProfiler>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, profiler);
    at::empty({25});
  }
  EXPECT_THAT(profiler->changes, ::testing::ElementsAre(100, -100));
}

// Freed after main() ends, on threads and by destructors that no one orders. CTest runs each test
// as a process of its own, and a crash at its end fails the test.
TEST_F(CpuAllocator, TensorsOutliveMain) {
  static at::Tensor in_static;
  static thread_local at::Tensor in_thread_local;
  in_static = at::ones({100});
  in_thread_local = at::ones({100'000});
  std::thread([] {
    static thread_local at::Tensor in_other_thread;
    in_other_thread = at::ones({100});
  }).join();
  EXPECT_EQ(held(), 400 + 400'000);
}

TEST_F(CpuAllocator, SaysWhatSmallTensorsKeepInPieces) {
  release_cached_cpu_memory();
  set_cpu_cap(cpu_memory().reserved_bytes + (4 << 20));
  std::vector<at::Tensor> small;
  for (int i = 0; i < 2500; ++i) small.push_back(at::empty({250}));  // 1,000 bytes
  for (size_t i = 0; i < small.size(); ++i) {
    if (i % 4 != 0) small[i].reset();
  }
  std::vector<at::Tensor> large;
  std::string said;
  while (fits([&] { large.push_back(at::ones({250'000})); }, &said)) continue;
  EXPECT_THAT(said, ::testing::HasSubstr("of it are free, in pieces too small"));
  large.clear();
  release_cached_cpu_memory();
  set_cpu_cap(before_.cap_bytes);
}

TEST(MemoryOf, RefusesWhatNoRecipeMayHave) {
  const auto said = [](const DeviceConfig& config, int64_t sharers = 1) {
    return error_of(Exit::kBug, [&] { memory_of(c10::kCPU, config, sharers); });
  };
  for (const double fraction : {-1.0, 0.0, 2.0}) {
    EXPECT_EQ(said({.memory_fraction = fraction}),
              fmt::format("memory_of(): memory_fraction is {}: expected more than 0, at most 1",
                          fraction));
  }
  EXPECT_EQ(said({.memory_gib = -3}),
            "memory_of(): memory_gib is -3: expected more than 0, or 0 for memory_fraction's");
  EXPECT_EQ(said({}, 0), "memory_of(): sharers is 0: expected at least 1");
}

/// Reads `bytes` of a file through a mapping, which it gives up.
void read_mapped(size_t bytes) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "file";
  testing::put_content(path, "x");
  std::filesystem::resize_file(path, bytes);
  const int file = open(path.c_str(), O_RDONLY);
  void* pages = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
  ASSERT_NE(pages, MAP_FAILED);
  munmap(pages, bytes);
  close(file);
}

TEST(CpuMemory, APeakThatIsForgottenIsNoLongerOutside) {
  constexpr int64_t kMib = 1 << 20;
  const auto memory = memory_of(c10::kCPU, {}, 1);
  read_mapped(64 * kMib);
  EXPECT_GT(memory->outside_bytes(), 32 * kMib);
  memory->forget_outside_peak();
  EXPECT_LT(memory->outside_bytes(), 16 * kMib);
  const std::vector<char> held(192 * kMib, 1);
  EXPECT_GT(memory->outside_bytes(), 128 * kMib);
}

bool says_out_of_memory(const std::string& words) {
  return as_error(c10::Error({"here", "there.cpp", 1}, words)).status() == Exit::kResource;
}

TEST(OutOfMemory, IsKnownByTypeOrByTheWordsOfCudasLibraries) {
  const c10::OutOfMemoryError by_type({"here", "there.cpp", 1}, "CUDA out of memory");
  EXPECT_EQ(as_error(by_type).status(), Exit::kResource);
  EXPECT_EQ(as_error(std::bad_alloc()).status(), Exit::kResource);
  EXPECT_TRUE(says_out_of_memory("CUDA error: out of memory\nCUDA kernel errors might be late"));
  EXPECT_TRUE(says_out_of_memory(
      "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"));
  EXPECT_TRUE(says_out_of_memory("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"));
  EXPECT_TRUE(says_out_of_memory("FIND was unable to find an engine to execute this computation"));
  EXPECT_FALSE(says_out_of_memory("CUDA error: device-side assert triggered"));
  EXPECT_FALSE(says_out_of_memory("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"));
  EXPECT_FALSE(says_out_of_memory("The size of tensor a (3) must match the size of tensor b (4)"));
}

}  // namespace
}  // namespace brim::device
