// Reads tar archives, as far as shards of samples need them: ustar and its elders, PAX headers
// (path, size), GNU's long names and base-256 sizes. Formats: POSIX.1-2024, "pax Interchange
// Format"; GNU tar manual, "Basic Tar Format". Nothing in an archive is trusted. Grouping members
// to samples is shard_index.h's, writing tar_writer.h's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/sources/byte_source.h"

namespace brim::data {

inline constexpr int64_t kTarBlock = 512;  // bytes; headers and contents begin at multiples

/// A regular file in an archive.
struct TarMember {
  std::string name;    // relative, without "..", without NUL
  int64_t header = 0;  // where its header lies, for errors
  int64_t offset = 0;  // of the content
  int64_t size = 0;    // of the content, which lies within the archive
};

/// Lists an archive's regular files in order. Folders are passed over; links, devices and pipes
/// too, and counted. Throws Error(kData) naming archive and byte for all else: truncation, a
/// missing end, wrong checksums, negative or overflowing sizes, absolute names and names with "..",
/// sparse and unknown members, compressed archives.
class TarReader {
 public:
  /// `source` outlives the reader.
  explicit TarReader(const ByteSource& source) : source_(source) {}

  /// Nullopt at the end of the archive.
  std::optional<TarMember> next();

  /// `count` bytes of the archive, valid until the next call. Small pieces close to each other, as
  /// headers and labels are, cost one read together.
  std::span<const uint8_t> bytes(int64_t offset, int64_t count);

  /// Whether another archive, or anything else but zeros, follows within 64 KiB of the end that
  /// next() has reached.
  bool has_more();

  /// Links, devices and pipes so far.
  int64_t passed_over() const { return passed_over_; }

  /// Throws the Error(kData) for what lies at a byte of the archive.
  [[noreturn]] void refuse(int64_t offset, const std::string& reason) const;

 private:
  /// A header's fields, its checksum verified.
  struct Header {
    char type;
    int64_t size;
    std::string name;
  };
  /// What PAX and GNU headers say of the member that follows.
  struct Overrides {
    std::optional<std::string> name;
    std::optional<int64_t> size;
  };

  std::optional<Header> read_header();
  bool read_extension(const Header& header, Overrides& overrides);
  void read_pax(std::string_view records, bool is_global, Overrides& overrides) const;
  void read_pax_record(std::string_view key, std::string_view value, bool is_global,
                       Overrides& overrides) const;
  bool has_content(const Header& header);
  int64_t content_end(int64_t size, std::string_view name) const;

  const ByteSource& source_;
  int64_t position_ = 0;  // of the header that is read
  int64_t passed_over_ = 0;
  std::vector<uint8_t> window_;  // the bytes read last
  int64_t window_start_ = 0;
};

/// "" for a name that may be joined to a folder, else what is wrong with it.
std::string_view unsafe_name(std::string_view name);

}  // namespace brim::data
