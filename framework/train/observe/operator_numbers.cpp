#include "framework/train/observe/operator_numbers.h"

#include <utility>

namespace brim::train {
namespace {

constexpr std::string_view kEnginePrefix = "autograd::engine::";  // that calls nodes

std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "fp32";
    case at::kDouble:
      return "fp64";
    case at::kHalf:
      return "fp16";
    case at::kBFloat16:
      return "bf16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kByte:
      return "uint8";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(type);
  }
}

}  // namespace

size_t OperatorNumbers::number_of(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const bool is_node =
      call.scope() == at::RecordScope::BACKWARD_FUNCTION || name.starts_with(kEnginePrefix);
  if (const auto known = is_node ? by_name(name) : by_place(call.name())) return *known;
  OperatorTraits traits = traits_of(call);
  if (traits.is_node) {  // such as RECORD_FUNCTION's
    if (const auto known = by_name(name)) return *known;
  }
  full_names_.emplace_back(name);
  const size_t number = traits_.size();
  if (traits.is_node) {
    nodes_[full_names_.back()] = number;
  } else {
    by_place_[call.name()] = number;
  }
  traits_.push_back(std::move(traits));
  return number;
}
std::optional<size_t> OperatorNumbers::by_place(const char* name) const {
  const auto found = by_place_.find(name);
  if (found == by_place_.end() || full_names_[found->second] != name) return std::nullopt;
  return found->second;
}
std::optional<size_t> OperatorNumbers::by_name(std::string_view name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? std::nullopt : std::optional(found->second);
}

void ShapeNumbers::add(const at::Tensor& tensor) {
  current_.push_back(static_cast<int64_t>(tensor.scalar_type()));
  current_.push_back(tensor.dim());
  const auto sizes = tensor.sizes();
  current_.insert(current_.end(), sizes.begin(), sizes.end());
}

size_t ShapeNumbers::number() {
  const auto [found, is_new] = numbers_.try_emplace(current_, signatures_.size());
  if (is_new) signatures_.push_back(&found->first);
  return found->second;
}

std::vector<telemetry::TensorShape> ShapeNumbers::shapes(size_t number) const {
  const Signature& signature = *signatures_[number];
  std::vector<telemetry::TensorShape> shapes;
  for (size_t i = 0; i < signature.size();) {
    telemetry::TensorShape shape{.dtype = dtype_name(static_cast<at::ScalarType>(signature[i])),
                                 .sizes = {}};
    const auto first = signature.begin() + static_cast<std::ptrdiff_t>(i + 2);
    shape.sizes.assign(first, first + signature[i + 1]);
    i += 2 + static_cast<size_t>(signature[i + 1]);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

size_t ShapeNumbers::Hash::operator()(const Signature& signature) const {
  uint64_t hash = 14695981039346656037U;  // FNV-1a, over whole values
  for (const int64_t value : signature) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211U;
  }
  return hash;
}

}  // namespace brim::train
