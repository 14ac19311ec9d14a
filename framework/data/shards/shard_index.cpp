#include "framework/data/shards/shard_index.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"

namespace brim::data {
namespace fs = std::filesystem;
namespace {

// A file is kFormat, the 32 hex digits of the body's digest, and the body: Head, then samples,
// name_ends and names. Numbers are little-endian.
static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kFormat = "brim shard index 1\n";
constexpr size_t kDigestBytes = 32;
constexpr int64_t kMaxIndexBytes = int64_t{8} << 30;

struct Head {
  int64_t shard_bytes;
  int64_t shard_modified_ns;
  uint64_t samples;
  uint64_t name_bytes;
};

template <class T>
void append(std::string& out, const T* values, size_t count) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

/// Moves `count` values from the front of `bytes`, which are there.
template <class T>
void take(std::string_view& bytes, T* values, size_t count) {
  if (count == 0) return;
  std::memcpy(values, bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
}

[[noreturn]] void refuse(const std::string& where, std::string_view reason) {
  throw Error(Exit::kData, "{}: damaged index of a shard: {}; remove it, it is rebuilt", where,
              reason);
}

/// Offsets, sizes, labels and names make sense for a shard of that size.
void check_content(const ShardIndex& index, const std::string& where) {
  const auto shard_bytes = static_cast<uint64_t>(index.shard_bytes);
  uint32_t name_start = 0;
  for (size_t i = 0; i < index.samples.size(); ++i) {
    const ShardSample& sample = index.samples[i];
    if (sample.offset > shard_bytes || sample.bytes > shard_bytes - sample.offset ||
        sample.label > kMaxLabel) {
      refuse(where, "a sample lies outside of the shard or has no label");
    }
    if (index.name_ends[i] <= name_start) refuse(where, "a sample has no name");
    name_start = index.name_ends[i];
  }
  if (name_start != index.names.size()) refuse(where, "names are missing or too many");
}

/// The stored index, where there is one that was made of this shard.
std::optional<ShardIndex> stored_index(const fs::path& path, const FileBytes& shard) {
  std::error_code code;
  const fs::path stored = index_path(path);
  if (!fs::exists(stored, code)) return {};
  try {
    ShardIndex index = parse_index(read_file(stored, Exit::kData, kMaxIndexBytes), stored.string());
    if (index.shard_bytes == shard.size() && index.shard_modified_ns == shard.modified_ns()) {
      return index;
    }
    log::info("{}: stale, its shard was changed; rebuilt", stored.string());
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
  return {};
}

}  // namespace

std::string_view ShardIndex::name(int64_t index) const {
  const auto i = static_cast<size_t>(index);
  const size_t start = i == 0 ? 0 : name_ends[i - 1];
  return std::string_view(names).substr(start, name_ends[i] - start);
}

std::string seal_index(std::string_view body) {
  std::string result(kFormat);
  result += digest(std::as_bytes(std::span(body)));
  result += body;
  return result;
}

std::string print_index(const ShardIndex& index) {
  const Head head = {index.shard_bytes, index.shard_modified_ns, index.samples.size(),
                     index.names.size()};
  std::string body;
  append(body, &head, 1);
  append(body, index.samples.data(), index.samples.size());
  append(body, index.name_ends.data(), index.name_ends.size());
  body += index.names;
  return seal_index(body);
}

ShardIndex parse_index(std::string_view bytes, const std::string& where) {
  if (!bytes.starts_with(kFormat)) refuse(where, "it doesn't begin as one");
  bytes.remove_prefix(kFormat.size());
  if (bytes.size() < kDigestBytes + sizeof(Head)) refuse(where, "truncated");
  const std::string_view stored_digest = bytes.substr(0, kDigestBytes);
  bytes.remove_prefix(kDigestBytes);
  if (stored_digest != digest(std::as_bytes(std::span(bytes)))) refuse(where, "its digest differs");
  Head head;
  take(bytes, &head, 1);
  constexpr size_t kSampleBytes = sizeof(ShardSample) + sizeof(uint32_t);
  if (head.samples > bytes.size() / kSampleBytes ||
      head.name_bytes != bytes.size() - head.samples * kSampleBytes ||
      head.name_bytes > std::numeric_limits<uint32_t>::max() || head.shard_bytes < 0) {
    refuse(where, "its sizes contradict each other");
  }
  ShardIndex index;
  index.shard_bytes = head.shard_bytes;
  index.shard_modified_ns = head.shard_modified_ns;
  index.samples.resize(head.samples);
  take(bytes, index.samples.data(), index.samples.size());
  index.name_ends.resize(head.samples);
  take(bytes, index.name_ends.data(), index.name_ends.size());
  index.names = bytes;
  check_content(index, where);
  return index;
}

fs::path index_path(const fs::path& shard) {
  fs::path path = shard;
  path += kIndexSuffix;
  return path;
}

void store_index(const fs::path& path, const ShardIndex& index) {
  write_file(index_path(path), print_index(index));
}

ShardIndex open_index(const fs::path& path) {
  const FileBytes shard(path);
  if (auto index = stored_index(path, shard)) return std::move(*index);
  ShardIndex index = build_index(shard);
  index.shard_modified_ns = shard.modified_ns();
  try {
    store_index(path, index);
  } catch (const Error& error) {
    static std::atomic<bool> said = false;
    if (!said.exchange(true)) {
      log::warning("{}; indexes of shards are kept in memory, and rebuilt by every run",
                   error.what());
    }
  }
  return index;
}

void check_shard(const ByteSource& shard, const ShardIndex& index, const std::string& advice) {
  if (shard.size() == index.shard_bytes) return;
  throw Error(Exit::kData, "{}: {} since it was indexed: expected {} bytes, found {}; {}",
              shard.name(), shard.size() < index.shard_bytes ? "truncated" : "changed",
              index.shard_bytes, shard.size(), advice);
}

}  // namespace brim::data
