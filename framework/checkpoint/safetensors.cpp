#include "framework/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <tuple>

#include "framework/checkpoint/json.h"
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

void check_entries(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors) {
  std::map<std::string_view, int> uses;
  for (const TensorBytes& tensor : tensors) {
    if (tensor.name == kMetadataKey || ++uses[tensor.name] > 1) {
      throw Error(Exit::kBug, "{}: the tensor name {} is reserved or given twice", path.string(),
                  in_quotes(tensor.name));
    }
    const auto size = tensor_size(tensor.dtype, tensor.shape);
    if (!size || static_cast<size_t>(*size) != tensor.bytes.size() ||
        tensor.shape.size() > kMostDimensions) {
      throw Error(Exit::kBug, "{}: tensor {} has {} bytes, which its shape does not need",
                  path.string(), in_quotes(tensor.name), tensor.bytes.size());
    }
  }
}

std::string print_header(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                         const Metadata& metadata) {
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
  size_t offset = 0;
  for (const TensorBytes& tensor : tensors) {
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", comma,
                          json_string(tensor.name, path), dtype_name(tensor.dtype),
                          fmt::join(tensor.shape, ","), offset, offset + tensor.bytes.size());
    offset += tensor.bytes.size();
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
    : path_(path),
      file_(path, Exit::kCheckpoint),
      content_(parse_safetensors(file_.bytes(), path.string())) {}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const auto found = std::ranges::find(content_.tensors, name, &TensorBytes::name);
  if (found == content_.tensors.end()) {
    throw Error(Exit::kCheckpoint, "{}: there is no tensor {} in this file", path_.string(),
                in_quotes(name));
  }
  return found->bytes;
}

void write_safetensors(const std::filesystem::path& path, std::vector<TensorBytes> tensors,
                       const Metadata& metadata) {
  check_entries(path, tensors);
  std::ranges::sort(tensors, [](const TensorBytes& a, const TensorBytes& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  const std::string header = print_header(path, tensors, metadata);
  if (header.size() > kLongestHeader) {
    throw Error(Exit::kBug, "{}: the header would take {} bytes; a reader takes at most {}",
                path.string(), header.size(), kLongestHeader);
  }
  const auto length = std::bit_cast<std::array<std::byte, kLengthBytes>>(uint64_t{header.size()});
  AtomicFile file(path);
  file.write(length);
  file.write(header);
  for (const TensorBytes& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace brim::checkpoint
