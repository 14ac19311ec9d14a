#include "framework/checkpoint/tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "framework/base/json.h"

namespace brim::checkpoint {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, kDTypeCount> kTypes = {{
    {DType::kBool, at::kBool},
    {DType::kU8, at::kByte},
    {DType::kI8, at::kChar},
    {DType::kF8_E5M2, at::kFloat8_e5m2},
    {DType::kF8_E4M3, at::kFloat8_e4m3fn},
    {DType::kF8_E8M0, at::kFloat8_e8m0fnu},
    {DType::kF8_E4M3FNUZ, at::kFloat8_e4m3fnuz},
    {DType::kF8_E5M2FNUZ, at::kFloat8_e5m2fnuz},
    {DType::kI16, at::kShort},
    {DType::kU16, at::kUInt16},
    {DType::kF16, at::kHalf},
    {DType::kBF16, at::kBFloat16},
    {DType::kI32, at::kInt},
    {DType::kU32, at::kUInt32},
    {DType::kF32, at::kFloat},
    {DType::kC64, at::kComplexFloat},
    {DType::kF64, at::kDouble},
    {DType::kI64, at::kLong},
    {DType::kU64, at::kUInt64},
}};

at::ScalarType to_scalar_type(DType dtype) {
  for (const auto& [ours, torchs] : kTypes) {
    if (ours == dtype) return torchs;
  }
  throw Error(Exit::kBug, "dtype {} has no LibTorch type", dtype_name(dtype));
}

DType to_dtype(const std::string& name, at::ScalarType type) {
  for (const auto& [ours, torchs] : kTypes) {
    if (torchs == type) return ours;
  }
  throw Error(Exit::kBug, "tensor {} has the type {}, which safetensors files cannot hold",
              in_quotes(name), c10::toString(type));
}

at::Tensor load_tensor(const TensorBytes& stored) {
  // Any byte other than 0 is true; a C++ bool must be 0 or 1.
  const bool is_bool = stored.dtype == DType::kBool;
  const at::ScalarType type = is_bool ? at::kByte : to_scalar_type(stored.dtype);
  at::Tensor tensor = at::empty(stored.shape, at::TensorOptions(type));
  if (!stored.bytes.empty()) {
    std::memcpy(tensor.mutable_data_ptr(), stored.bytes.data(), stored.bytes.size());
  }
  return is_bool ? tensor.to(at::kBool) : tensor;
}

}  // namespace

std::vector<TensorLayout> layout_of(const TensorMap& tensors) {
  std::vector<TensorLayout> layout;
  for (const auto& [name, tensor] : tensors) {
    layout.push_back({name, to_dtype(name, tensor.scalar_type()), tensor.sizes().vec()});
  }
  return layout;
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void save_tensors(const std::filesystem::path& path, const TensorMap& tensors,
                  const Metadata& metadata) {
  std::vector<at::Tensor> owners;  // of the bytes that the entries point to
  std::vector<TensorBytes> entries;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
    owners.push_back(plain);
    entries.push_back(
        {name, to_dtype(name, plain.scalar_type()), plain.sizes().vec(), bytes_of(plain)});
  }
  write_safetensors(path, entries, metadata);
}

TensorMap load_tensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  TensorMap tensors;
  for (const TensorBytes& stored : file.tensors()) tensors[stored.name] = load_tensor(stored);
  return tensors;
}

TensorMap view_tensors(const std::shared_ptr<const WeightFiles>& files) {
  TensorMap tensors;
  for (const TensorBytes& stored : files->tensors()) {
    const auto address = reinterpret_cast<uintptr_t>(stored.bytes.data());
    const bool is_as_stored = stored.dtype != DType::kBool && !stored.bytes.empty() &&
                              address % static_cast<uintptr_t>(dtype_size(stored.dtype)) == 0;
    tensors[stored.name] = is_as_stored
                               ? at::from_blob(
                                     const_cast<std::byte*>(stored.bytes.data()), stored.shape,
                                     [files](void*) {}, to_scalar_type(stored.dtype))
                               : load_tensor(stored);
  }
  return tensors;
}

TensorMap copy_to_cpu(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) {
    at::Tensor copy = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
    copies[name] = copy.copy_(tensor.detach());
  }
  return copies;
}

void check_fit(const TensorMap& from, const TensorMap& into, const std::string& what) {
  std::vector<std::string> differences;
  for (const auto& [name, target] : into) {
    const auto found = from.find(name);
    if (found == from.end()) {
      differences.push_back(fmt::format("{}: lacks {} [{}], which this run needs", what, name,
                                        fmt::join(target.sizes(), ", ")));
    } else if (found->second.sizes() != target.sizes()) {
      differences.push_back(fmt::format("{}: {}: expected shape [{}], found [{}]", what, name,
                                        fmt::join(target.sizes(), ", "),
                                        fmt::join(found->second.sizes(), ", ")));
    }
  }
  for (const auto& [name, source] : from) {
    if (into.contains(name)) continue;
    differences.push_back(fmt::format("{}: holds {} [{}], for which this run has no place", what,
                                      in_quotes(name), fmt::join(source.sizes(), ", ")));
  }
  if (!differences.empty()) {
    const size_t count = differences.size();
    differences.resize(std::min(count, kMaxListed));
    const bool has_any =
        std::ranges::any_of(from, [&](const auto& item) { return into.contains(item.first); });
    if (!from.empty() && !has_any) {
      differences.push_back(
          fmt::format("{}: has no name in common with this run: its names are like {}", what,
                      in_quotes(from.begin()->first)));
    }
    differences.push_back(fmt::format(
        "{}: does not fit this run ({} {}{}); use the recipe that it was saved with, or, "
        "for model.pretrained of another model, model.strict = false",
        what, count, count == 1 ? "difference" : "differences",
        count > kMaxListed ? fmt::format(", the first {} above", kMaxListed) : ""));
    throw Error(Exit::kCheckpoint, "{}", fmt::join(differences, "\n"));
  }
}

void copy_into(const TensorMap& from, TensorMap& into, const std::string& what,
               const std::vector<std::shared_ptr<const WeightFiles>>& files) {
  check_fit(from, into, what);
  const c10::NoGradGuard no_grad;
  for (auto& [name, target] : into) {
    const at::Tensor& source = from.at(name);
    target.copy_(source);
    if (files.empty() || !source.is_contiguous()) continue;
    for (const auto& file : files) file->let_go(bytes_of(source));
  }
}

}  // namespace brim::checkpoint
