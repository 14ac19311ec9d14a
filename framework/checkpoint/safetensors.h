// The safetensors file format (https://github.com/huggingface/safetensors): names, types, shapes
// and raw values, nothing that runs. This part knows bytes only; tensors.h makes tensors of them.
//
//   8 bytes    header length N, little-endian
//   N bytes    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …,
//               "__metadata__": {"key": "value"}}, padded with spaces
//   the rest   the values, row-major and little-endian, without holes
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/files.h"

namespace brim::checkpoint {

/// In the order of the reference implementation: files are sorted by it. The format's types
/// narrower than a byte (F4, F6_*) are refused.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8_E5M2,
  kF8_E4M3,
  kF8_E8M0,
  kF8_E4M3FNUZ,
  kF8_E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
inline constexpr int kDTypeCount = 19;

/// "F32", "BF16", …: the names in files.
std::string_view dtype_name(DType dtype);
/// Bytes per element.
int64_t dtype_size(DType dtype);

/// One tensor of a file; `bytes` points into memory that another object owns.
struct TensorBytes {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;  // [] is a scalar
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

/// What a file holds; the spans point into its image.
struct Safetensors {
  std::vector<TensorBytes> tensors;  // in the order of their bytes
  Metadata metadata;
};

/// Checks a whole file's image against every rule of the format: header within the file and at
/// most 100 MB, no key twice, no hole, no overlap, no trailing byte, sizes that agree. Stricter
/// than the reference in that an entry has its three keys only and at most 64 dimensions.
/// Throws Error(kCheckpoint), naming `where`. The spans of the result are not aligned.
Safetensors parse_safetensors(std::span<const std::byte> image, const std::string& where);

/// A file mapped into memory and checked as a whole. The spans live as long as this object.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<TensorBytes>& tensors() const { return content_.tensors; }
  const Metadata& metadata() const { return content_.metadata; }

 private:
  MappedFile file_;
  Safetensors content_;
};

/// A tensor that a file is to hold.
struct TensorLayout {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

/// Writes a file whose values come in pieces, in any order. Byte for byte as the Python package
/// does: widest types first, then by name; values start at a multiple of 8 bytes. Appears under its
/// path by commit() only. Throws Error(kResource) if the disk won't take it, Error(kBug) for what
/// no file can hold.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorLayout> tensors,
                    const Metadata& metadata = {});

  /// Values of the tensor from this byte of it on.
  void write(std::string_view name, int64_t offset, std::span<const std::byte> bytes);
  /// Throws Error(kBug) where bytes are missing; else as AtomicFile::commit().
  void commit();

 private:
  struct Place {
    int64_t begin = 0;  // in the file
    int64_t size = 0;
  };
  std::filesystem::path path_;
  AtomicFile file_;
  std::map<std::string, Place, std::less<>> places_;
  int64_t missing_bytes_ = 0;
};

/// SafetensorsWriter in one call.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const Metadata& metadata = {});

}  // namespace brim::checkpoint
