// The IDX format of MNIST: magic 00 00 type rank, then big-endian 32-bit sizes, then values; here
// of type uint8, plain or gzip. Images are rank 3 [n, h, w] or 4 [n, h, w, c]; labels are rank 1.
// http://yann.lecun.com/exdb/mnist/
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/base/files.h"

namespace brim::data {

/// A parsed array; `values` refers into the bytes it was parsed from.
struct IdxArray {
  std::vector<int64_t> shape;
  std::span<const uint8_t> values;
};

/// `name` is what errors call the file. Throws Error(kData): wrong magic, type or rank, a size of
/// zero, a length that is not exactly what the sizes say.
IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& name);

/// Only the sizes, from the file's first bytes; the length is not checked.
std::vector<int64_t> parse_idx_shape(std::span<const uint8_t> bytes, const std::string& name);

/// True for bytes that begin as gzip does.
bool is_gzip(std::span<const uint8_t> bytes);

/// The whole IDX file inside a gzip. Memory is bounded by the sizes in the IDX header, which are
/// themselves refused where so few compressed bytes can't hold them. Throws Error(kData).
std::vector<uint8_t> inflate_idx(std::span<const uint8_t> bytes, const std::string& name);

/// An IDX file in memory: mapped where plain, inflated where gzip. Throws as above.
class IdxFile {
 public:
  explicit IdxFile(const std::filesystem::path& path);

  const IdxArray& array() const { return array_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<MappedFile> map_;
  std::vector<uint8_t> inflated_;
  IdxArray array_;
};

/// The sizes in a file's header, without reading the rest.
std::vector<int64_t> read_idx_shape(const std::filesystem::path& path);

}  // namespace brim::data
