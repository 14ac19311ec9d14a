#include "framework/train/weights/renamed_weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/json.h"

namespace brim::train {
namespace {

using checkpoint::TensorMap;

std::vector<int64_t> without_ones(at::IntArrayRef sizes) {
  std::vector<int64_t> result;
  std::ranges::copy_if(sizes, std::back_inserter(result), [](int64_t size) { return size != 1; });
  return result;
}

/// `theirs` in the shape of `ours`, where one is the other without its dimensions of size 1.
at::Tensor as_ours(const at::Tensor& theirs, const at::Tensor& ours) {
  const bool is_flat =
      theirs.dim() == 1 && without_ones(ours.sizes()) == without_ones(theirs.sizes());
  return is_flat ? theirs.view(ours.sizes()) : theirs;
}

int64_t count_known(const TensorMap& theirs, const TensorMap& ours,
                    const std::vector<nn::NameRule>& rules) {
  return std::ranges::count_if(theirs, [&](const auto& item) {
    const auto renamed = nn::to_ours(item.first, rules);
    return renamed && ours.contains(renamed->name);
  });
}

/// What PyTorch's DistributedDataParallel and torch.compile put before each name.
void leave_out_wrappers(TensorMap& theirs) {
  for (const std::string_view prefix : {"module.", "_orig_mod.", "module."}) {
    const auto has_it = [&](const auto& item) { return item.first.starts_with(prefix); };
    if (theirs.empty() || !std::ranges::all_of(theirs, has_it)) continue;
    TensorMap renamed;
    for (const auto& [name, tensor] : theirs) renamed[name.substr(prefix.size())] = tensor;
    theirs = std::move(renamed);
  }
}

}  // namespace

std::string name_as_ours(TensorMap& theirs, const TensorMap& ours,
                         const std::vector<nn::WeightNames>& packages, const std::string& what) {
  leave_out_wrappers(theirs);
  int64_t most =
      std::ranges::count_if(theirs, [&](const auto& item) { return ours.contains(item.first); });
  const nn::WeightNames* best = nullptr;
  for (const nn::WeightNames& package : packages) {
    const int64_t known = count_known(theirs, ours, package.rules);
    if (known <= most) continue;
    most = known;
    best = &package;
  }
  if (best == nullptr) return "";
  TensorMap renamed;
  for (const auto& [name, tensor] : theirs) {
    const auto found = nn::to_ours(name, best->rules);
    const auto target = found ? ours.find(found->name) : ours.end();
    const bool is_known = target != ours.end();
    const bool is_new =
        renamed
            .emplace(is_known ? target->first : name, is_known && found->rule->is_flat_there
                                                          ? as_ours(tensor, target->second)
                                                          : tensor)
            .second;
    if (is_new) continue;
    throw Error(Exit::kCheckpoint, "{}: {} stands for {}, which the file holds too", what,
                in_quotes(name), target->first);
  }
  theirs = std::move(renamed);
  return best->package;
}

TensorMap name_as_theirs(const TensorMap& ours, const nn::WeightNames& package) {
  TensorMap theirs;
  for (const auto& [name, tensor] : ours) {
    const auto renamed = nn::to_theirs(name, package.rules);
    if (!renamed) {
      if (!package.rules.empty()) {
        throw Error(Exit::kBug, "no rule gives {} one of {}'s names", name, package.package);
      }
      theirs[name] = tensor;
      continue;
    }
    theirs[renamed->name] = renamed->rule->is_flat_there ? tensor.flatten() : tensor;
  }
  return theirs;
}

}  // namespace brim::train
