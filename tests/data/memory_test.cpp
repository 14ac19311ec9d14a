// Memory over many epochs: what a loader takes in its first epochs is all that it ever takes.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "framework/data/loading/loader.h"
#include "framework/data/samplers/shuffled.h"
#include "framework/data/shards/pack.h"
#include "framework/data/sources/image_folder.h"
#include "framework/data/sources/webdataset.h"
#include "tests/data/pictures.h"
#include "tests/support/temporary_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Of the sanitizers' runtimes; GCC comes without the header that declares it.
extern "C" size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace brim::data {
namespace {

constexpr int64_t kImages = 32;

struct Memory {
  int64_t heap_bytes = 0;      // handed out and not given back
  int64_t resident_bytes = 0;  // of the process
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/// A sanitizer keeps what was given back for a while, so that the process grows all the same.
Memory memory() { return {static_cast<int64_t>(__sanitizer_get_current_allocated_bytes()), 0}; }
#else
Memory memory() {
  const struct mallinfo2 heap = ::mallinfo2();
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return {static_cast<int64_t>(heap.uordblks + heap.hblkhd), pages * ::getpagesize()};
}
#endif

/// Trains on nothing for 50 epochs.
void expect_flat(const Dataset& dataset) {
  Loader loader(dataset, {.global_batch = 8,
                          .micro_batch = 8,
                          .workers = 2,
                          .order = shuffled_order(dataset, 1, {}),
                          .augment = true,
                          .epochs = 50});
  Memory early;
  while (const Batch* batch = loader.next()) {
    if (batch->ends_epoch && batch->epoch == 4) early = memory();
  }
  const Memory late = memory();
  // Not 0: a thread may be about to make its buffers, or in the middle of an image.
  EXPECT_LT(late.heap_bytes - early.heap_bytes, 256 << 10);
  EXPECT_LT(late.resident_bytes - early.resident_bytes, 1 << 20);
}

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    for (int64_t i = 0; i < kImages; ++i) {
      const Bytes bytes = i % 4 == 0 ? png(60, 80) : jpeg(60, 80);
      const auto path = folder_ / "images" / (i % 2 == 0 ? "cat" : "dog");
      std::filesystem::create_directories(path);
      testing::put_content(path / fmt::format("{}.{}", i, i % 4 == 0 ? "png" : "jpg"),
                           {bytes.begin(), bytes.end()});
    }
  }

  ImageOptions options(CacheKind cache) const {
    // Room for about half of the images.
    constexpr int64_t kHalf = kImages / 2;
    const double bytes = kHalf * (cache == CacheKind::kDecoded ? 60 * 80 * 3 : 3000);
    return {.image_size = 32,
            .resize = 36,
            .cache = cache,
            .cache_gib = bytes / static_cast<double>(1 << 30)};
  }
  static AugmentConfig augment() { return {.flip = true, .crop = Crop::kRandomResized}; }

  testing::TemporaryFolder folder_;
};

TEST_F(MemoryTest, IsFlatOver50EpochsOfAFolder) {
  for (const CacheKind cache : {CacheKind::kNone, CacheKind::kEncoded, CacheKind::kDecoded}) {
    SCOPED_TRACE(static_cast<int>(cache));
    ImageFolderConfig config;
    config.train = folder_ / "images";
    config.options = options(cache);
    expect_flat(*config.open_train(augment()));
  }
}

TEST_F(MemoryTest, IsFlatOver50EpochsOfShards) {
  pack(*open_image_folder(folder_ / "images"), folder_ / "shards", {.samples = 5});
  WebDatasetConfig config;
  config.train = folder_ / "shards";
  config.options = options(CacheKind::kNone);
  expect_flat(*config.open_train(augment()));
}

}  // namespace
}  // namespace brim::data
