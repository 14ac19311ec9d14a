#include "framework/train/rank_model.h"

#include <ATen/ATen.h>

#include "framework/nn/batch_norm.h"

namespace brim::train {

distributed::SplitState* RankModel::split() const {
  if (pipeline) return pipeline.get();
  return sharded.get();
}

distributed::FullySharded::Named RankModel::own_parameters() const {
  if (sharded) return sharded->shards();
  return module->named_parameters().pairs();
}

optim::State RankModel::own_tensors() const {
  optim::State tensors;
  for (const auto& [name, tensor] : own_parameters()) tensors[name] = tensor;
  for (const auto& item : module->named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

void RankModel::stop_waiting_within_passes() {
  if (sharded) sharded->stay_apart();
  if (!has_sync_batch_norm) return;
  nn::synchronize_batch_norms(*module, [](const at::Tensor&) {});
  has_sync_batch_norm = false;
}

}  // namespace brim::train
