#include "framework/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <tuple>

#include "framework/base/json.h"
#include "framework/checkpoint/safetensors_rules.h"

namespace brim::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in files");

struct DTypeRow {
  std::string_view name;
  int64_t size;
};
constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {{
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},     {"U16", 2},
    {"F16", 2},     {"BF16", 2},        {"I32", 4},         {"U32", 4},     {"F32", 4},
    {"C64", 8},     {"F64", 8},         {"I64", 8},         {"U64", 8},
}};

std::string json_string(const std::string& text, const std::filesystem::path& path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(Exit::kBug, "{}: {} is not UTF-8", path.string(), in_quotes(text));
  }
}

/// Bytes of a tensor that a file can hold. Throws Error(kBug) for any other.
int64_t checked_size(const std::filesystem::path& path, const TensorLayout& tensor) {
  const auto size = tensor_size(tensor.dtype, tensor.shape);
  if (!size || tensor.shape.size() > kMaxDimensions || tensor.name == kMetadataKey) {
    throw Error(Exit::kBug, "{}: no file can hold a tensor of the name and shape of {}",
                path.string(), in_quotes(tensor.name));
  }
  return *size;
}

std::string print_header(const std::filesystem::path& path,
                         const std::vector<TensorLayout>& tensors, const Metadata& metadata) {
  std::string header = "{";
  std::string_view comma;
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      header += fmt::format("{}{}:{}", comma, json_string(key, path), json_string(value, path));
      comma = ",";
    }
    header += "}";
  }
  int64_t offset = 0;
  for (const TensorLayout& tensor : tensors) {
    const int64_t size = checked_size(path, tensor);
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", comma,
                          json_string(tensor.name, path), dtype_name(tensor.dtype),
                          fmt::join(tensor.shape, ","), offset, offset + size);
    offset += size;
    comma = ",";
  }
  header += "}";
  header.append(-header.size() % kLengthBytes, ' ');
  return header;
}

}  // namespace

std::string_view dtype_name(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).name; }

int64_t dtype_size(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)).size; }

std::optional<DType> find_dtype(std::string_view name) {
  const auto* found = std::ranges::find(kDTypes, name, &DTypeRow::name);
  if (found == kDTypes.end()) return std::nullopt;
  return static_cast<DType>(found - kDTypes.begin());
}

std::optional<int64_t> tensor_size(DType dtype, std::span<const int64_t> shape) {
  int64_t size = dtype_size(dtype);  // with 1 for 0, as strides are computed
  bool is_empty = false;
  for (const int64_t extent : shape) {
    is_empty = is_empty || extent == 0;
    if (extent < 0 || __builtin_mul_overflow(size, std::max<int64_t>(extent, 1), &size)) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : size;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path, Exit::kCheckpoint), content_(parse_safetensors(file_.bytes(), path.string())) {}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorLayout> tensors, const Metadata& metadata)
    : path_(path), file_(path) {
  std::ranges::sort(tensors, [](const TensorLayout& a, const TensorLayout& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  const std::string header = print_header(path, tensors, metadata);
  if (header.size() > kLongestHeader) {
    throw Error(Exit::kBug, "{}: the header would take {} bytes; a reader takes at most {}",
                path.string(), header.size(), kLongestHeader);
  }
  const auto length = std::bit_cast<std::array<std::byte, kLengthBytes>>(uint64_t{header.size()});
  file_.write(length);
  file_.write(header);
  const auto values = static_cast<int64_t>(kLengthBytes + header.size());
  for (const TensorLayout& tensor : tensors) {
    const int64_t size = checked_size(path, tensor);
    if (!places_.try_emplace(tensor.name, Place{values + missing_bytes_, size}).second) {
      throw Error(Exit::kBug, "{}: the tensor name {} is given twice", path.string(),
                  in_quotes(tensor.name));
    }
    missing_bytes_ += size;
  }
}

void SafetensorsWriter::write(std::string_view name, int64_t offset,
                              std::span<const std::byte> bytes) {
  const auto found = places_.find(name);
  const auto count = static_cast<int64_t>(bytes.size());
  if (found == places_.end() || offset < 0 || offset > found->second.size ||
      count > found->second.size - offset) {
    throw Error(Exit::kBug, "{}: {} has no place for bytes {} to {}", path_.string(),
                in_quotes(name), offset, offset + count);
  }
  file_.write_at(found->second.begin + offset, bytes);
  missing_bytes_ -= count;
}

void SafetensorsWriter::commit() {
  if (missing_bytes_ != 0) {
    throw Error(Exit::kBug, "{}: {} bytes of values are missing", path_.string(), missing_bytes_);
  }
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const Metadata& metadata) {
  std::vector<TensorLayout> layout;
  for (const TensorBytes& tensor : tensors) {
    layout.push_back({tensor.name, tensor.dtype, tensor.shape});
    if (checked_size(path, layout.back()) != static_cast<int64_t>(tensor.bytes.size())) {
      throw Error(Exit::kBug, "{}: tensor {} has {} bytes, which its shape does not need",
                  path.string(), in_quotes(tensor.name), tensor.bytes.size());
    }
  }
  SafetensorsWriter writer(path, std::move(layout), metadata);
  for (const TensorBytes& tensor : tensors) writer.write(tensor.name, 0, tensor.bytes);
  writer.commit();
}

}  // namespace brim::checkpoint
