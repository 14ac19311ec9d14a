// Images kept in memory from one epoch to the next, as files hold them or decoded, until a budget
// is used up. What was put in stays; what comes too late is read each time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace brim::data {

/// An image in the cache; encoded ones have no height and width.
struct CachedImage {
  int64_t height = 0;
  int64_t width = 0;
  std::span<const uint8_t> bytes;
};

/// Members may be called from several threads at once.
class ImageCache {
 public:
  /// For images 0 … images - 1. Counted are the images' bytes and what each of them takes besides.
  ImageCache(int64_t images, int64_t budget_bytes);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  /// Null where the cache has no such image. What is found stays as long as the cache.
  const CachedImage* find(int64_t index) const;
  /// Copies the image in, if there is room and no other thread was first. The first image for which
  /// there is no room is logged.
  void add(int64_t index, const CachedImage& image);

  int64_t count() const { return count_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    CachedImage image;
    std::unique_ptr<uint8_t[]> memory;
  };

  const int64_t budget_bytes_;
  std::vector<std::atomic<Entry*>> entries_;
  std::atomic<int64_t> count_ = 0;
  std::atomic<int64_t> bytes_;
  std::atomic<bool> is_full_ = false;
};

}  // namespace brim::data
