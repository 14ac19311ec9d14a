#include "framework/data/image/image_cache.h"

#include <algorithm>

#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::data {

ImageCache::ImageCache(int64_t images, int64_t budget_bytes)
    : budget_bytes_(budget_bytes),
      entries_(static_cast<size_t>(images)),
      bytes_(images * static_cast<int64_t>(sizeof(entries_[0]))) {}

ImageCache::~ImageCache() {
  for (const auto& entry : entries_) delete entry.load();
}

const CachedImage* ImageCache::find(int64_t index) const {
  const Entry* entry = entries_[static_cast<size_t>(index)].load(std::memory_order_acquire);
  return entry == nullptr ? nullptr : &entry->image;
}

void ImageCache::add(int64_t index, const CachedImage& image) {
  if (is_full_) return;
  const auto bytes = static_cast<int64_t>(image.bytes.size() + sizeof(Entry));
  if (bytes_.fetch_add(bytes) + bytes > budget_bytes_) {
    bytes_ -= bytes;
    if (!is_full_.exchange(true)) {
      log::warning("the cache is full with {} of {} images in {}; the others are read each time",
                   format_count(count_), format_count(static_cast<int64_t>(entries_.size())),
                   format_bytes(bytes_));
    }
    return;
  }
  auto entry = std::make_unique<Entry>();
  entry->memory = std::make_unique_for_overwrite<uint8_t[]>(image.bytes.size());
  std::ranges::copy(image.bytes, entry->memory.get());
  entry->image = {image.height, image.width, {entry->memory.get(), image.bytes.size()}};
  Entry* none = nullptr;
  if (entries_[static_cast<size_t>(index)].compare_exchange_strong(none, entry.get())) {
    entry.release();
    ++count_;
  } else {
    bytes_ -= bytes;
  }
}

}  // namespace brim::data
