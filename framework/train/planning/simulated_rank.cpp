#include "framework/train/planning/simulated_rank.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/timeline.h"
#include "framework/data/transfer/prefetcher.h"
#include "framework/nn/block.h"
#include "framework/nn/flops.h"
#include "framework/nn/stage.h"
#include "framework/nn/without_storage.h"
#include "framework/optim/clip.h"
#include "framework/train/inputs.h"

namespace brim::train {
namespace {

using nn::WithoutStorage;

/// Puts a gradient that is complete into its bucket, where sums are made (data_parallel.h).
class IntoBucket final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit IntoBucket(at::Tensor view) : view_(std::move(view)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    parameter.mutable_grad() = view_;
  }

 private:
  at::Tensor view_;
};

/// The buckets of one step's sums: while this lives, gradients end there.
class Buckets {
 public:
  Buckets(const std::vector<at::Tensor>& parameters, const at::Tensor& memory)
      : parameters_(parameters) {
    int64_t first = 0;
    for (const at::Tensor& parameter : parameters_) {
      const auto bytes = static_cast<int64_t>(parameter.nbytes());
      const at::Tensor row = memory.narrow(0, first, bytes).view(parameter.scalar_type());
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter, std::make_unique<IntoBucket>(row.as_strided(
                         parameter.sizes(), parameter.strides(), row.storage_offset())));
      first += bytes;
    }
  }
  ~Buckets() {
    for (const at::Tensor& parameter : parameters_) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
    }
  }
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

 private:
  const std::vector<at::Tensor>& parameters_;
};

/// Counts the operations of outermost blocks while it lives.
class BlockFlops final : public nn::BlockObserver {
 public:
  BlockFlops(nn::Model& model, const nn::FlopCounter& counter) : counter_(counter) {
    for (const auto& [name, block] : nn::named_blocks(model)) {
      if (!blocks_.empty() && name.starts_with(last_ + ".")) continue;
      last_ = name;
      block->observe(this);
      blocks_.push_back(block);
    }
  }
  ~BlockFlops() override {
    for (nn::Block* block : blocks_) block->observe(nullptr);
  }
  BlockFlops(const BlockFlops&) = delete;
  BlockFlops& operator=(const BlockFlops&) = delete;

  void before(nn::Block& /*block*/, const at::Tensor& /*x*/) override { start_ = counter_.total(); }
  void after(nn::Block& /*block*/, const at::Tensor& /*x*/, const at::Tensor& /*y*/) override {
    total_ += counter_.total() - start_;
  }
  int64_t total() const { return total_; }

 private:
  const nn::FlopCounter& counter_;
  std::vector<nn::Block*> blocks_;
  std::string last_;
  int64_t start_ = 0, total_ = 0;
};

/// A tensor of so many samples, in the order of `few`.
at::Tensor resized(const at::Tensor& few, int64_t samples) {
  if (!few.defined()) return few;
  std::vector<int64_t> sizes = few.sizes().vec();
  sizes[0] = samples;
  return at::empty(sizes, few.options(), few.suggest_memory_format()).zero_();
}

}  // namespace

SimulatedRank::SimulatedRank(const JobConfig& job, const distributed::Ranks& ranks, bool is_cpu,
                             const device::Memory& memory, const StagePlan* stages)
    : job_(job), is_cpu_(is_cpu) {
  const int64_t others_bytes = WithoutStorage::held_bytes();
  WithoutStorage::reset_peak();
  components_ = build_components(job, c10::kCPU, distributed::Group::apart(ranks), Weights::kNone,
                                 /*memory=*/nullptr, stages);
  components_.model.stop_waiting_within_passes();
  account_ = memory_account(job.checkpoint, components_, memory);
  building_bytes_ = building_bytes(WithoutStorage::peak_bytes() - others_bytes);
  if (is_cpu_) {
    room_bytes_ = account_.checkpoint_bytes;
    const bool is_split = components_.optimizer->is_sharded();
    if (job.checkpoint.enabled && components_.model.split() == nullptr) {
      last_copy_bytes_ = account_.parameters_bytes + account_.ema_bytes +
                         (is_split ? 0 : account_.optimizer_bytes);
    }
  }
  account_.checkpoint_bytes = room_bytes_;
  for (const auto& [name, parameter] : components_.model.own_parameters()) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
  components_.model.module->train();
  Timeline timeline;
  const int64_t share = *job.batch.global / components_.model.data_world();
  few_ = Inputs(job, components_.data, components_.model)
             .training(0, share, nullptr, timeline)
             ->next()
             ->tensors;
  own_bytes_ = WithoutStorage::held_bytes() - others_bytes;
}

/// `whole` are those of a model of which the rank keeps all; of one that is split it has a tensor
/// at a time beside its part (build_model.h).
int64_t SimulatedRank::building_bytes(int64_t whole) const {
  if (components_.model.sharded) return account_.parameters_bytes + components_.model.largest_bytes;
  if (components_.model.pipeline)
    return std::max(account_.parameters_bytes, components_.model.largest_bytes);
  return whole;
}

data::DeviceBatch SimulatedRank::batch_of(int64_t samples) const {
  return {.inputs = resized(few_.inputs, samples),
          .labels = resized(few_.labels, samples),
          .partner_labels = resized(few_.partner_labels, samples),
          .label_shares = resized(few_.label_shares, samples)};
}

/// Of one rank alone, and of a sharded model, gradients have memory only while they are there.
int64_t SimulatedRank::bucket_bytes() const {
  if (components_.model.sharded || components_.model.data_world() == 1) return 0;
  return account_.gradients_bytes;
}

void SimulatedRank::accumulate(const data::DeviceBatch& batch, bool sums,
                               std::optional<amp::WeightCasts>& casts) {
  if (components_.model.sharded) components_.model.sharded->before_forward(sums);
  components_.optimizer->begin_forward();
  at::Tensor scaled;
  {
    const amp::Autocast autocast(c10::kCPU, components_.model.precision);
    scaled = components_.scaler->scale(components_.task->loss(*components_.model.module, batch));
  }
  if (sums) casts.reset();
  if (components_.model.sharded) {
    components_.model.sharded->backward(scaled, sums, [&] { scaled.backward(); });
  } else {
    scaled.backward();
  }
}

SimulatedRank::Flight SimulatedRank::forward_of_stage(int64_t micro) {
  const distributed::Pipeline& pipeline = *components_.model.pipeline;
  data::DeviceBatch batch = batch_of(micro);
  Flight flight{.model_inputs = batch.inputs, .inputs = batch.inputs, .outputs = {}};
  if (!pipeline.is_first()) {
    flight.inputs = pipeline.inputs().empty(micro, c10::kCPU).requires_grad_();
  }
  dynamic_cast<nn::Stage&>(*components_.model.module).whole().begin(flight.model_inputs);
  const amp::Autocast autocast(c10::kCPU, components_.model.precision);
  if (pipeline.is_last()) {
    batch.inputs = flight.inputs;
    flight.outputs =
        components_.scaler->scale(components_.task->loss(*components_.model.module, batch));
  } else {
    flight.outputs = components_.model.module->forward(flight.inputs);
  }
  return flight;
}

void SimulatedRank::backward_of_stage(const Flight& flight) {
  const distributed::Pipeline& pipeline = *components_.model.pipeline;
  dynamic_cast<nn::Stage&>(*components_.model.module).whole().begin(flight.model_inputs);
  at::Tensor gradient;
  if (!pipeline.is_last()) {
    gradient = pipeline.outputs().empty(flight.outputs.size(0), c10::kCPU);
  }
  if (flight.outputs.requires_grad()) flight.outputs.backward(gradient);
}

/// As pipeline_step.h takes a step, with as many micro-batches at most as make a difference: those
/// under way at a time, and one more.
void SimulatedRank::accumulate_in_stages(const StepShape& shape, const at::Tensor& bucket_memory) {
  const distributed::Pipeline& pipeline = *components_.model.pipeline;
  const int64_t live = distributed::live_micro_batches(job_.distributed.schedule, pipeline.stages(),
                                                       pipeline.stage(), shape.micro_batches);
  at::Tensor next_inputs, next_gradient;  // that are being received
  if (shape.micro_batches > live && !pipeline.is_first()) {
    next_inputs = pipeline.inputs().empty(shape.micro, c10::kCPU);
  }
  if (shape.micro_batches > 1 && !pipeline.is_last()) {
    next_gradient = pipeline.outputs().empty(shape.micro, c10::kCPU);
  }
  std::optional<amp::WeightCasts> casts;
  if (components_.model.shares_casts(!shape.recompute.empty())) casts.emplace();
  std::deque<Flight> flights;
  for (int64_t i = 0; i < live; ++i) flights.push_back(forward_of_stage(shape.micro));
  if (shape.micro_batches > live) {
    backward_of_stage(flights.front());
    flights.pop_front();
    flights.push_back(forward_of_stage(shape.micro));
  }
  casts.reset();
  for (; flights.size() > 1; flights.pop_front()) backward_of_stage(flights.front());
  std::optional<Buckets> buckets;
  if (bucket_memory.numel() > 0) buckets.emplace(parameters_, bucket_memory);
  backward_of_stage(flights.front());
}

StagePlan SimulatedRank::cut(int64_t micro, int64_t micro_batches, int64_t cap_bytes) {
  const WithoutStorage without_storage;
  const at::Tensor inputs = batch_of(micro).inputs;
  return cut_model(job_, components_, inputs, micro_batches, cap_bytes, IfNoneFits::kIgnoreMemory);
}

void SimulatedRank::update() {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (job_.train.clip_norm > 0) {
    components_.scaler->unscale(gradients);
    optim::clip_grad_norm(gradients, job_.train.clip_norm);
  } else {
    components_.scaler->check(gradients);
  }
  components_.optimizer->step(
      /*learning_rate=*/0, {components_.scaler->grad_scale(), components_.scaler->found_inf()});
  if (components_.ema) components_.ema->update(components_.scaler->found_inf());
  components_.scaler->update();
  components_.optimizer->zero_grad();
}

void SimulatedRank::evaluate(int64_t samples) {
  const at::NoGradGuard no_grad;
  components_.model.module->eval();
  {
    std::optional<distributed::FullySharded::Evaluation> evaluation;
    if (components_.model.sharded) evaluation.emplace(*components_.model.sharded);
    const amp::Autocast autocast(c10::kCPU, components_.model.precision);
    data::DeviceBatch batch = batch_of(samples);
    distributed::MessageRoom room;
    if (const auto& pipeline = components_.model.pipeline) {
      dynamic_cast<nn::Stage&>(*components_.model.module).whole().begin(batch.inputs);
      room = pipeline->room_for_messages(samples, c10::kCPU);
      if (!pipeline->is_first()) batch.inputs = room.before;
    }
    if (components_.model.pipeline && !components_.model.pipeline->is_last()) {
      components_.model.module->forward(batch.inputs);
    } else {
      components_.task->evaluation_sums(*components_.model.module, batch);
    }
  }
  components_.model.module->train();
}

int64_t SimulatedRank::peak_bytes(const StepShape& shape) {
  nn::Model& whole = nn::whole_of(*components_.model.module);
  for (const auto& [name, block] : nn::named_blocks(whole)) block->set_recomputed(false);
  nn::recompute(whole, shape.recompute);
  const WithoutStorage without_storage;
  const int64_t others_bytes = WithoutStorage::held_bytes() - own_bytes_;
  WithoutStorage::reset_peak();
  const at::Tensor bucket_memory = at::empty({bucket_bytes()}, at::kByte);
  distributed::MessageRoom message_room;
  if (components_.model.pipeline) {
    message_room = components_.model.pipeline->room_for_messages(shape.micro, c10::kCPU);
  }
  {
    const at::Tensor room = at::empty({room_bytes_}, at::kByte);
    if (components_.model.pipeline) {
      accumulate_in_stages(shape, bucket_memory);
    } else {
      const data::DeviceBatch batch = batch_of(shape.micro);
      std::optional<amp::WeightCasts> casts;
      if (shape.micro_batches > 1) {
        if (components_.model.shares_casts(!shape.recompute.empty())) casts.emplace();
        accumulate(batch, /*sums=*/false, casts);
      }
      std::optional<Buckets> buckets;
      if (bucket_memory.numel() > 0) buckets.emplace(parameters_, bucket_memory);
      accumulate(batch, /*sums=*/true, casts);
    }
    update();
    if (shape.eval_batch > 0) evaluate(shape.eval_batch);
  }
  const int64_t last = WithoutStorage::held_bytes() + last_copy_bytes_;
  const int64_t most = std::max(WithoutStorage::peak_bytes(), last);
  message_room = {};
  own_bytes_ = WithoutStorage::held_bytes() - bucket_bytes() - others_bytes;
  return std::max(most - others_bytes, building_bytes_);
}

ForwardFlops SimulatedRank::forward_flops() {
  const WithoutStorage without_storage;
  const at::NoGradGuard no_grad;
  const data::DeviceBatch batch = batch_of(few_.inputs.size(0));
  const nn::FlopCounter counter;
  const BlockFlops blocks(*components_.model.module, counter);
  components_.task->loss(*components_.model.module, batch);
  const int64_t samples = few_.inputs.size(0);
  return {.all = counter.total() / samples,
          .in_blocks = blocks.total() / samples,
          .operators = counter.operators()};
}

}  // namespace brim::train
