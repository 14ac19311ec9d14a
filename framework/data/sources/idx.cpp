#include "framework/data/sources/idx.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "framework/base/error.h"

namespace brim::data {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr size_t kSizeBytes = 4;
constexpr size_t kMaxRank = 4;
constexpr size_t kMaxHeaderBytes = kMagicBytes + kMaxRank * kSizeBytes;
constexpr uint8_t kTypeUint8 = 0x08;
constexpr int64_t kMaxIdxBytes = int64_t{1} << 40;
// Deflate spends at least a bit on 129 bytes: RFC 1951's longest match is 258 bytes in two bits.
constexpr int64_t kMaxDeflateRatio = 1032;

size_t header_bytes(size_t rank) { return kMagicBytes + rank * kSizeBytes; }

/// Length of a whole file with these sizes.
int64_t file_bytes(const std::vector<int64_t>& shape, const std::string& name) {
  int64_t bytes = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMaxIdxBytes) {
      throw Error(Exit::kData, "{}: its header says [{}] values: more than any file of this format",
                  name, fmt::join(shape, ", "));
    }
  }
  return bytes + static_cast<int64_t>(header_bytes(shape.size()));
}

std::span<const uint8_t> as_uint8(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

/// Inflates one gzip file, piece by piece.
class Inflater {
 public:
  Inflater(std::span<const uint8_t> bytes, const std::string& name) : rest_(bytes), name_(name) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) {
      throw Error(Exit::kResource, "{}: not enough memory to inflate it", name);
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Fills as much of `out` as the file has left and returns how much that was.
  size_t read(std::span<uint8_t> out) {
    size_t done = 0;
    while (done < out.size() && !ended_) {
      // zlib counts in 32 bits.
      constexpr size_t kMax = std::numeric_limits<int>::max();
      const size_t wanted = std::min(out.size() - done, kMax);
      const size_t offered = std::min(rest_.size(), kMax);
      stream_.next_in = const_cast<uint8_t*>(rest_.data());  // zlib only reads it
      stream_.avail_in = static_cast<uInt>(offered);
      stream_.next_out = out.data() + done;
      stream_.avail_out = static_cast<uInt>(wanted);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      rest_ = rest_.subspan(offered - stream_.avail_in);
      done += wanted - stream_.avail_out;
      if (status == Z_STREAM_END) {
        end_member();
      } else if (status == Z_BUF_ERROR || (status == Z_OK && rest_.empty() && done < out.size())) {
        throw Error(Exit::kData, "{}: truncated: the gzip data ends too early", name_);
      } else if (status != Z_OK) {
        throw Error(Exit::kData, "{}: damaged gzip data: {}", name_,
                    stream_.msg != nullptr ? stream_.msg : "inflate failed");
      }
    }
    return done;
  }

 private:
  /// A gzip file may be several, one after the other (RFC 1952, 2.2).
  void end_member() {
    ended_ = rest_.empty();
    if (ended_) return;
    if (!is_gzip(rest_)) {
      throw Error(Exit::kData, "{}: {} bytes follow the end of the gzip data", name_, rest_.size());
    }
    inflateReset(&stream_);
  }

  z_stream stream_{};
  std::span<const uint8_t> rest_;
  const std::string& name_;
  bool ended_ = false;
};

}  // namespace

std::vector<int64_t> parse_idx_shape(std::span<const uint8_t> bytes, const std::string& name) {
  if (bytes.empty()) throw Error(Exit::kData, "{}: expected an IDX file, found an empty one", name);
  if (bytes.size() < kMagicBytes || bytes[0] != 0 || bytes[1] != 0) {
    throw Error(Exit::kData,
                "{}: not an IDX file: it should begin with the bytes 00 00 08, found {:02x}", name,
                fmt::join(bytes.first(std::min(bytes.size(), kMagicBytes)), " "));
  }
  if (bytes[2] != kTypeUint8) {
    throw Error(Exit::kData, "{}: expected values of type uint8 (08), found type {:02x}", name,
                bytes[2]);
  }
  const size_t rank = bytes[3];
  if (rank < 1 || rank > kMaxRank) {
    throw Error(Exit::kData, "{}: expected 1 to {} dimensions, found {}", name, kMaxRank, rank);
  }
  if (bytes.size() < header_bytes(rank)) {
    throw Error(Exit::kData, "{}: truncated: {} bytes end inside the header", name, bytes.size());
  }
  std::vector<int64_t> shape;
  for (size_t i = 0; i < rank; ++i) {
    const auto b = bytes.subspan(kMagicBytes + i * kSizeBytes, kSizeBytes);
    shape.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | b[3]);
  }
  if (std::ranges::find(shape, 0) != shape.end()) {
    throw Error(Exit::kData, "{}: its header says [{}]: it holds nothing", name,
                fmt::join(shape, ", "));
  }
  return shape;
}

IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& name) {
  std::vector<int64_t> shape = parse_idx_shape(bytes, name);
  const int64_t expected = file_bytes(shape, name);
  const auto found = static_cast<int64_t>(bytes.size());
  if (found != expected) {
    throw Error(Exit::kData, "{}: {}: its header says [{}], {} bytes in all, found {}", name,
                found < expected ? "truncated" : "too long", fmt::join(shape, ", "), expected,
                found);
  }
  const size_t rank = shape.size();
  return {std::move(shape), bytes.subspan(header_bytes(rank))};
}

bool is_gzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

std::vector<uint8_t> inflate_idx(std::span<const uint8_t> bytes, const std::string& name) {
  std::array<uint8_t, kMaxHeaderBytes> header{};
  const size_t header_size = Inflater(bytes, name).read(header);
  const auto shape = parse_idx_shape(std::span(header).first(header_size), name);
  const int64_t expected = file_bytes(shape, name);
  if (expected / kMaxDeflateRatio > static_cast<int64_t>(bytes.size())) {
    throw Error(Exit::kData,
                "{}: its header says [{}], {} bytes in all, which {} compressed bytes can't hold",
                name, fmt::join(shape, ", "), expected, bytes.size());
  }
  std::vector<uint8_t> content(static_cast<size_t>(expected));
  Inflater inflater(bytes, name);
  content.resize(inflater.read(content));  // parse_idx() reports what is missing
  // Reading on checks the gzip checksum, and finds what is too much.
  uint8_t extra = 0;
  if (inflater.read({&extra, 1}) != 0) {
    throw Error(Exit::kData, "{}: too long: its header says [{}], {} bytes in all, found more",
                name, fmt::join(shape, ", "), expected);
  }
  return content;
}

IdxFile::IdxFile(const std::filesystem::path& path)
    : name_(path.string()), map_(std::make_unique<MappedFile>(path, Exit::kData)) {
  auto bytes = as_uint8(map_->bytes());
  if (is_gzip(bytes)) {
    inflated_ = inflate_idx(bytes, name_);
    map_.reset();
    bytes = inflated_;
  }
  array_ = parse_idx(bytes, name_);
}

std::vector<int64_t> read_idx_shape(const std::filesystem::path& path) {
  const MappedFile map(path, Exit::kData);
  const auto bytes = as_uint8(map.bytes());
  if (!is_gzip(bytes)) return parse_idx_shape(bytes, path.string());
  const std::string name = path.string();
  std::array<uint8_t, kMaxHeaderBytes> header{};
  const size_t size = Inflater(bytes, name).read(header);
  return parse_idx_shape(std::span(header).first(size), name);
}

}  // namespace brim::data
