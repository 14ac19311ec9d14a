#include "framework/train/observe/operator_traits.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace brim::train {
namespace {

constexpr std::string_view kEngineCall = "autograd::engine::evaluate_function: ";

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

/// Makes memory that nothing is written to.
bool only_allocates(std::string_view name) {
  return is_any_of(
      name, {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty",
             "aten::new_empty_strided", "aten::empty_permuted", "aten::resize_", "aten::set_"});
}

/// "torch::autograd::CppNode<brim::nn::(anonymous namespace)::FusedLinear>" is "FusedLinear".
std::string node_name(std::string_view name) {
  if (name.starts_with(kEngineCall)) return "autograd engine";
  if (!name.ends_with('>')) return std::string(name);
  name.remove_suffix(1);
  const size_t scope = name.rfind("::");
  const size_t bracket = name.rfind('<');
  if (scope != std::string_view::npos) return std::string(name.substr(scope + 2));
  return std::string(bracket == std::string_view::npos ? name : name.substr(bracket + 1));
}

}  // namespace

OperatorTraits traits_of(const at::RecordFunction& call) {
  OperatorTraits traits;
  const std::string_view name = call.name();
  const auto schema = call.operator_schema();
  if (!schema) {
    traits.name = node_name(name);
    traits.is_node = traits.moves_nothing = true;
    return traits;
  }
  traits.name = std::string(name);
  traits.flops = nn::product_flops(name);
  traits.gathers = is_any_of(name, {"aten::embedding", "aten::index_select", "aten::gather"});
  traits.reads_what_it_writes = !is_any_of(name, {"aten::copy_", "aten::fill_", "aten::zero_"});
  bool makes_view = false;
  for (const c10::Argument& argument : schema->arguments()) {
    // Fused optimizers may scale gradients in place, and are never asked to.
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite() &&
                            argument.name() != "grads";
    makes_view |= argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
    traits.writes.push_back(is_written);
    traits.takes_targets |= argument.name() == "target" || argument.name() == "labels";
    if (is_written && argument.is_out()) traits.reads_what_it_writes = false;
  }
  traits.moves_nothing = makes_view || only_allocates(name);
  return traits;
}

int64_t bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return 0;
  return static_cast<int64_t>(
      std::min<size_t>(tensor.nbytes(), tensor.storage().nbytes()));  // an expanded one has less
}

}  // namespace brim::train
