#include "framework/train/weights/pretrained.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/log.h"
#include "framework/checkpoint/tensors.h"
#include "framework/checkpoint/weight_files.h"
#include "framework/train/weights/renamed_weights.h"

namespace brim::train {
namespace {

using checkpoint::TensorMap;

/// What torch.save() writes begins as a zip archive or as a pickle.
bool is_pickled(const std::filesystem::path& path) {
  const MappedFile file(path, Exit::kCheckpoint);
  const auto* start = reinterpret_cast<const char*>(file.bytes().data());
  const std::string_view bytes(start, std::min<size_t>(file.bytes().size(), 4));
  if (bytes.size() < 4) return false;
  return bytes == std::string_view("PK\3\4", 4) ||
         (bytes.starts_with('\x80') && bytes[1] >= 2 && bytes[1] <= 5);
}

void refuse_pickles(const std::filesystem::path& path) {
  if (!is_pickled(path)) return;
  std::filesystem::path converted = path;
  converted.replace_extension(".safetensors");
  throw Error(Exit::kCheckpoint,
              "{}: expected a safetensors file, found one of PyTorch's pickles, which can run "
              "programs and is never read. Where you trust it: python3 -c \"import torch, "
              "safetensors.torch as s; w = torch.load('{}', weights_only=True); w = "
              "w.get('state_dict', w); "
              "s.save_file({{k: v.clone().contiguous() for k, v in w.items()}}, '{}')\"",
              path.string(), path.string(), converted.string());
}

/// "layer1.0" of "layer1.0.weight".
std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool differs_in_classes_only(const at::Tensor& ours, const at::Tensor& theirs) {
  return ours.dim() >= 1 && ours.dim() == theirs.dim() && ours.size(0) != theirs.size(0) &&
         ours.sizes().slice(1) == theirs.sizes().slice(1);
}

/// Where the file's last layer is for another number of classes: its tensors, and those of
/// auxiliary heads, which differ in the same way; else none. A norm has no classes.
std::set<std::string> heads_of_other_classes(const nn::Model& model, const TensorMap& ours,
                                             const TensorMap& theirs) {
  const auto parameters = model.named_parameters();
  if (parameters.is_empty()) return {};
  const std::string head = module_of(parameters.pairs().back().first);
  const auto classes = [](const at::Tensor& a, const at::Tensor& b) {
    return std::pair(a.size(0), b.size(0));
  };
  std::optional<std::pair<int64_t, int64_t>> in_head;
  bool has_matrix = false;
  for (const auto& [name, tensor] : ours) {
    if (module_of(name) != head) continue;
    const auto found = theirs.find(name);
    if (found == theirs.end() || !differs_in_classes_only(tensor, found->second)) return {};
    in_head = classes(tensor, found->second);
    has_matrix |= tensor.dim() > 1;
  }
  if (!has_matrix) return {};
  std::set<std::string> names;
  for (const auto& [name, tensor] : ours) {
    const auto found = theirs.find(name);
    if (found != theirs.end() && differs_in_classes_only(tensor, found->second) &&
        classes(tensor, found->second) == in_head) {
      names.insert(name);
    }
  }
  return names;
}

void say_heads(const std::set<std::string>& heads, const TensorMap& ours, const TensorMap& theirs) {
  std::string last;
  for (const std::string& name : heads) {
    const std::string module = module_of(name);
    if (std::exchange(last, module) == module) continue;
    log::info(
        "model.pretrained: {} has {} classes in the file and {} in the model; it is re-initialised",
        module, theirs.at(name).size(0), ours.at(name).size(0));
  }
}

void say_conversions(const TensorMap& ours, const TensorMap& theirs,
                     const std::filesystem::path& path) {
  std::set<std::string_view> types;
  for (const auto& [name, tensor] : theirs) {
    const auto found = ours.find(name);
    if (found == ours.end() || found->second.scalar_type() == tensor.scalar_type()) continue;
    const bool is_usual = found->second.scalar_type() == at::kDouble &&
                          tensor.scalar_type() == at::kFloat;  // precision.mode = "fp64"
    if (!is_usual) types.insert(c10::toString(tensor.scalar_type()));
  }
  for (const std::string_view type : types) {
    log::warning("{}: its {} weights are converted to the model's type", path.string(), type);
  }
}

/// What fits; the rest is said. Throws Error(kCheckpoint) where that is all.
void keep_what_fits(TensorMap& ours, TensorMap& theirs, const std::filesystem::path& path) {
  const auto fits = [&](const auto& item) {
    const auto found = theirs.find(item.first);
    return found != theirs.end() && found->second.sizes() == item.second.sizes();
  };
  if (!ours.empty() && !theirs.empty() && std::ranges::none_of(ours, fits)) {
    throw Error(Exit::kCheckpoint,
                "{}: none of its {} tensors fits this model: its names are like {}, the model's "
                "like {}. Choose the model that it was saved from, or leave model.pretrained out",
                path.string(), theirs.size(), in_quotes(theirs.begin()->first),
                in_quotes(ours.begin()->first));
  }
  size_t missing = 0;
  for (auto item = ours.begin(); item != ours.end();) {
    const bool is_kept = fits(*item);
    if (!is_kept && ++missing <= checkpoint::kMaxListed) {
      log::warning("{}: {} {}; it is re-initialised", path.string(),
                   theirs.contains(item->first) ? "has another shape for" : "lacks", item->first);
    }
    item = is_kept ? std::next(item) : ours.erase(item);
  }
  if (missing > checkpoint::kMaxListed) {
    log::warning("{}: {} tensors in all are re-initialised", path.string(), missing);
  }
  size_t unused = 0;
  for (auto item = theirs.begin(); item != theirs.end();) {
    const bool is_used = ours.contains(item->first);
    if (!is_used && ++unused <= checkpoint::kMaxListed) {
      log::warning("{}: {} is not used", path.string(), in_quotes(item->first));
    }
    item = is_used ? std::next(item) : theirs.erase(item);
  }
  if (unused > checkpoint::kMaxListed) {
    log::warning("{}: {} tensors in all are not used", path.string(), unused);
  }
}

/// Files from before 2018 lack the counters of batch norms, which count from 0 then.
void leave_counters_that_are_missing(TensorMap& ours, const TensorMap& theirs) {
  std::erase_if(ours, [&](const auto& item) {
    return item.first.ends_with(".num_batches_tracked") && !theirs.contains(item.first);
  });
}

/// Modules, inner ones first, that hold parameters and none that is trained.
std::vector<torch::nn::Module*> frozen_modules(nn::Model& model) {
  std::vector<torch::nn::Module*> result;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto parameters = module->parameters();
    const bool is_trained = std::ranges::any_of(
        parameters, [](const at::Tensor& parameter) { return parameter.requires_grad(); });
    if (!parameters.empty() && !is_trained) result.push_back(module.get());
  }
  return result;
}

/// Any other file of that name says nothing of a model.
void require_same_as_described(const nn::Model& model, const std::filesystem::path& description) {
  constexpr int64_t kLongest = 1 << 20;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(description, ignored)) return;
  nlohmann::json config;
  try {
    config = parse_json(read_file(description, Exit::kCheckpoint, kLongest), description.string());
  } catch (const Error&) {
    return;
  }
  if (!config.is_object()) return;
  try {
    model.require_same(config, description.string());
  } catch (const nlohmann::json::type_error&) {
    return;
  }
}

}  // namespace

std::shared_ptr<const checkpoint::WeightFiles> load_pretrained(
    nn::Model& model, const std::vector<nn::WeightNames>& packages,
    const std::filesystem::path& path, bool strict) {
  if (!std::filesystem::exists(path)) {
    throw Error(Exit::kCheckpoint, "[model] pretrained: {}: there is no such file", path.string());
  }
  refuse_pickles(path);
  const auto files = std::make_shared<const checkpoint::WeightFiles>(path);
  TensorMap theirs = checkpoint::view_tensors(files);
  TensorMap ours = nn::named_tensors(model);
  const std::string package = name_as_ours(theirs, ours, packages, path.string());
  if (!package.empty()) log::info("model.pretrained: the names are {}'s", package);
  if (strict) require_same_as_described(model, path.parent_path() / "config.json");
  model.adapt_weights(theirs);
  const std::set<std::string> heads = heads_of_other_classes(model, ours, theirs);
  say_heads(heads, ours, theirs);
  for (const std::string& name : heads) {
    ours.erase(name);
    theirs.erase(name);
  }
  leave_counters_that_are_missing(ours, theirs);
  if (!strict) keep_what_fits(ours, theirs, path);
  say_conversions(ours, theirs, path);
  checkpoint::copy_into(theirs, ours, path.string(), {files});
  return files;
}

void freeze(nn::Model& model, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (auto& item : model.named_parameters()) {
      if (::fnmatch(pattern.c_str(), item.key().c_str(), 0) != 0) continue;
      item.value().set_requires_grad(false);
      matches = true;
    }
    if (matches) continue;
    throw Error(Exit::kRecipe,
                "[model] freeze: \"{}\" matches no parameter of this model, which begin with {}",
                pattern,
                fmt::join(std::span(names).first(std::min<size_t>(names.size(), 5)), ", "));
  }
  const auto parameters = model.parameters();
  if (std::ranges::none_of(parameters, [](const at::Tensor& p) { return p.requires_grad(); })) {
    throw Error(Exit::kRecipe, "[model] freeze leaves no parameter to train");
  }
  model.keep_in_evaluation(frozen_modules(model));
}

}  // namespace brim::train
