#include "framework/train/build_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/checkpoint/weight_files.h"
#include "framework/nn/batch_norm.h"
#include "framework/nn/block.h"
#include "framework/nn/deferred_init.h"
#include "framework/nn/fused.h"
#include "framework/nn/measured_forms.h"
#include "framework/nn/without_storage.h"
#include "framework/train/stage_plan.h"
#include "framework/train/weights/pretrained.h"

namespace brim::train {
namespace {

uint64_t rank_seed(const JobConfig& job, int64_t rank) {
  return philox(static_cast<uint64_t>(job.run.seed), static_cast<uint64_t>(rank), 0)[0];
}

/// Of the whole model, of which this rank may keep a part.
void count_parameters(RankModel& model) {
  model.parameters = model.trained_parameters = model.largest_bytes = 0;
  for (const at::Tensor& parameter : model.module->parameters()) {
    model.parameters += parameter.numel();
    if (parameter.requires_grad()) model.trained_parameters += parameter.numel();
    model.has_convolutions |= parameter.dim() == 4;  // [out, in, height, width]
    model.largest_bytes = std::max(model.largest_bytes, static_cast<int64_t>(parameter.nbytes()));
  }
}

/// The values of a model, which may be computed as each rank asks for those that it keeps.
class Values {
 public:
  /// Calls build(), which makes `model`, with or without memory for its weights.
  Values(bool is_split, std::shared_ptr<nn::Model>& model, const std::function<void()>& build)
      : model_(model) {
    if (is_split && !nn::WithoutStorage::is_on() && can_be_deferred(build)) return;
    deferred_.reset();
    build();
  }

  /// Calls work(), which changes them.
  void change(const std::function<void()>& work) {
    if (deferred_ == nullptr) return work();
    deferred_->record(work);
    if (!is_exact()) throw Error(Exit::kBug, "the weights of a model were read before their time");
  }
  /// They are read from there: its memory is let go of where they are there.
  void come_from(std::shared_ptr<const checkpoint::WeightFiles> files) {
    files_ = std::move(files);
  }
  void fill(at::Tensor& tensor) {
    if (deferred_ == nullptr) return;
    deferred_->fill(tensor);
    if (files_ != nullptr) files_->let_go();
  }
  /// Those rows of the tensor and row 0, or all: whether it was all.
  bool fill_rows(at::Tensor& tensor, distributed::RowRange rows) {
    if (deferred_ == nullptr) return true;
    const bool is_whole = deferred_->fill_rows(tensor, rows.first, rows.count);
    if (files_ != nullptr) files_->let_go();
    return is_whole;
  }

 private:
  bool is_exact() const { return deferred_->is_exact(nn::named_tensors(*model_)); }
  bool can_be_deferred(const std::function<void()>& build) {
    deferred_ = std::make_unique<nn::DeferredInit>();
    try {
      deferred_->record(build);
      return is_exact();
    } catch (const std::exception&) {
      return false;  // or it fails with all of its weights, too, and says why
    }
  }

  std::shared_ptr<nn::Model>& model_;
  std::unique_ptr<nn::DeferredInit> deferred_;  // null: all is there
  std::shared_ptr<const checkpoint::WeightFiles> files_;
};

void synchronize_batch_norms(const JobConfig& job, RankModel& model) {
  if (!job.distributed.sync_batch_norm || model.group->is_single_rank()) return;
  const int64_t count =
      nn::synchronize_batch_norms(*model.module, [group = model.group](const at::Tensor& sums) {
        group->all_reduce(sums, distributed::Reduce::kSum, "the statistics of batch norms");
      });
  model.has_sync_batch_norm = count > 0;
}

}  // namespace

nn::Fused fused_forms(const JobConfig& job) {
  if (job.precision.fused) return *job.precision.fused ? nn::Fused::kAlways : nn::Fused::kNever;
  // Which form is faster may differ from run to run, and with it the last bits.
  return job.run.deterministic ? nn::Fused::kUsual : nn::Fused::kMeasured;
}

std::shared_ptr<nn::Model> new_model(const ModelSection& section, const nn::ModelShape& input) {
  std::shared_ptr<nn::Model> model = section.model->build(input);
  if (model != nullptr && !model->parameters().empty()) return model;
  throw Error(Exit::kRecipe, "model.name = \"{}\": build() returned {}", section.model.selected(),
              model == nullptr ? "no model"
                               : "a model without parameters: expected some to train. Does its "
                                 "constructor call register_module()?");
}

void build_model(const JobConfig& job, Weights weights, c10::Device device, const StagePlan* stages,
                 RankModel& model) {
  const bool is_stage = stages != nullptr && !stages->cut.empty();
  if (is_stage && device.is_cuda() && job.distributed.backend == distributed::Backend::kGloo) {
    throw Error(
        Exit::kRecipe,
        "[distributed] backend = \"gloo\" sends no messages between GPUs, as stages do; leave "
        "it out");
  }
  const bool is_sharded = job.distributed.strategy == distributed::StrategyKind::kFsdp &&
                          !model.group->is_single_rank();
  Values values(is_stage || is_sharded, model.module, [&] {
    at::manual_seed(job.run.seed);
    model.module = new_model(job.model, model.input);
  });
  if (weights != Weights::kOfCheckpoint && !job.model.pretrained.empty()) {
    values.change([&] {
      if (model.precision.parameters() == at::kDouble) model.module->to(at::kDouble);
      values.come_from(load_pretrained(*model.module, job.model.model->weight_names(),
                                       job.model.pretrained, job.model.strict));
    });
  }
  if (!job.model.freeze.empty()) freeze(*model.module, job.model.freeze);
  count_parameters(model);
  model.channels_last = job.precision.channels_last && model.has_convolutions;
  nn::use_fused(*model.module, fused_forms(job));
  nn::expect_parameters(model.parameters *
                        static_cast<int64_t>(c10::elementSize(model.precision.parameters())));
  nn::recompute(*model.module, job.train.recompute);
  if (is_stage) {
    model.pipeline = take_stage(*stages, model.group, model.module);
    model.stage_lines = stages->lines;
    for (auto& [name, tensor] : nn::named_tensors(*model.module)) values.fill(tensor);
  }
  // Dropout differs from rank to rank.
  if (!model.group->is_main()) at::manual_seed(rank_seed(job, model.group->rank()));
  const auto convert = [&] {
    model.module->to(is_sharded ? c10::Device(c10::kCPU) : device, model.precision.parameters());
    if (model.channels_last) nn::use_channels_last(*model.module);
  };
  is_sharded ? values.change(convert) : convert();
  synchronize_batch_norms(job, model);
  if (!is_sharded) return;
  model.sharded = std::make_shared<distributed::FullySharded>(
      model.group, model.module,
      [&](at::Tensor& tensor, distributed::RowRange rows) {
        return values.fill_rows(tensor, rows);
      },
      device, model.precision.autocast ? model.precision.compute : model.precision.parameters(),
      job.distributed.shards == 0 ? model.group->world() : job.distributed.shards,
      job.distributed.gradients);
}

}  // namespace brim::train
