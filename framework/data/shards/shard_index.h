// What a tar shard holds: for each sample where its image lies, and its label. Members form samples
// as the Python package webdataset has it: those that follow each other and share the name up to
// the base name's first dot; what comes after the dot says what a member is. An index is stored in
// a file beside its shard, since making it means reading all headers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/sources/byte_source.h"

namespace brim::data {

inline constexpr std::string_view kIndexSuffix = ".index";
inline constexpr int64_t kMaxLabel = (int64_t{1} << 24) - 1;

/// Where an image lies in its shard, and its label.
struct ShardSample {
  uint64_t offset;
  uint32_t bytes;
  uint32_t label;
  bool operator==(const ShardSample&) const = default;
};

struct ShardIndex {
  // The shard as it was: another size or time of change means that the index is stale.
  int64_t shard_bytes = 0;
  int64_t shard_modified_ns = 0;
  std::vector<ShardSample> samples;
  std::string names;                // of the images' members, one after the other
  std::vector<uint32_t> name_ends;  // in `names`, a sample each
  int64_t passed_over = 0;          // members that make no sample; only after build_index()

  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  std::string_view name(int64_t index) const;
};

/// Lists a shard's samples. A sample needs one image (jpg, jpeg, png) and one label (cls: a whole
/// number in ASCII). Files of neither kind, hidden ones and names like __meta__ are passed over.
/// Throws Error(kData): TarReader's, and samples that lack either or have it twice.
ShardIndex build_index(const ByteSource& shard);

/// The bytes of an index's file.
std::string print_index(const ShardIndex& index);
/// Throws Error(kData), naming `where`, for anything that print_index() can't have made.
ShardIndex parse_index(std::string_view bytes, const std::string& where);
/// A digest and a body as parse_index() wants them after the format's name; for its fuzzer.
std::string seal_index(std::string_view body);

/// The stored index of the shard `path` where it fits, else one made now and stored. Where it can't
/// be stored, that is said once.
ShardIndex open_index(const std::filesystem::path& path);

/// Writes `index` beside its shard.
void store_index(const std::filesystem::path& path, const ShardIndex& index);

std::filesystem::path index_path(const std::filesystem::path& shard);

/// Throws Error(kData) where `index` was not made of this shard; `advice` says what to do then.
void check_shard(const ByteSource& shard, const ShardIndex& index, const std::string& advice);

}  // namespace brim::data
