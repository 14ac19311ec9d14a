// The check of models against each other, part of data_parallel.h.

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <span>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/distributed/data_parallel.h"
#include "framework/nn/model.h"
#include "framework/nn/without_storage.h"

namespace brim::distributed {
namespace {

constexpr const char* kCheck = "the check that every rank has the same model";

std::string difference(const nlohmann::json& first, const nlohmann::json& other) {
  for (const auto& [name, tensor] : first.items()) {
    const auto found = other.find(name);
    if (found == other.end()) return fmt::format("it has no {}", name);
    if ((*found)[0] != tensor[0]) {
      return fmt::format("{} is {}, on rank 0 {}", name, (*found)[0].get<std::string>(),
                         tensor[0].get<std::string>());
    }
    if ((*found)[1] != tensor[1]) return fmt::format("{} has other values", name);
  }
  for (const auto& [name, tensor] : other.items()) {
    if (!first.contains(name)) return fmt::format("it has {}, which rank 0 lacks", name);
  }
  return {};
}

}  // namespace

TensorDescription describe(const at::Tensor& tensor, std::optional<int64_t> rows) {
  const std::string shape =
      fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (nn::WithoutStorage::is_on()) return {shape, ""};  // no values
  const at::Tensor part = rows ? tensor.detach().narrow(0, 0, *rows) : tensor.detach();
  const at::Tensor values = part.to(at::kCPU).contiguous();
  return {shape, digest(std::as_bytes(std::span(static_cast<const char*>(values.const_data_ptr()),
                                                values.nbytes())))};
}

ModelDescription describe_model(const torch::nn::Module& model) {
  ModelDescription description;
  for (const auto& [name, tensor] : nn::named_tensors(model)) description[name] = describe(tensor);
  return description;
}

void require_same_model(Group& group, const ModelDescription& description) {
  if (group.process_group() == nullptr) return;
  const std::string own = nlohmann::json(description).dump();
  // All agree as a rule, so that only digests travel.
  const std::string own_digest = digest(std::as_bytes(std::span(own)));
  const std::vector<std::string> digests = group.all_gather(own_digest, kCheck);
  for (int64_t rank = 1; rank < group.world(); ++rank) {
    if (digests[static_cast<size_t>(rank)] == digests[0]) continue;
    const auto first = nlohmann::json::parse(group.broadcast(own, kCheck, 0));
    const auto other = nlohmann::json::parse(group.broadcast(own, kCheck, rank));
    throw Error(
        Exit::kDistributed,
        "rank {}'s model differs from rank 0's: {}. Every rank must run the same program on "
        "the same recipe, and build the model from the same seed",
        rank, difference(first, other));
  }
}

void broadcast_buffers(Group& group, const torch::nn::Module& model) {
  if (group.is_single_rank()) return;
  const at::NoGradGuard no_grad;
  for (const auto& buffer : model.buffers()) group.broadcast(buffer, "the buffers of rank 0");
}

}  // namespace brim::distributed
