#include "framework/train/step/pipeline_step.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/data/transfer/prefetcher.h"
#include "framework/device/memory/memory.h"
#include "framework/device/stream_event.h"
#include "framework/nn/stage.h"
#include "framework/train/rank_model.h"

namespace brim::train {
namespace {

constexpr const char* kStagesOutcome = "the outcome of the step on all stages";
constexpr size_t kGradientsUnderWay = 2;  // messages to the stage before

/// The first stage that has a parameter to train; no one wants the gradients of what goes into it.
int64_t first_learning(const RankModel& model) {
  const distributed::Pipeline& pipeline = *model.pipeline;
  const std::vector<at::Tensor> own = model.module->parameters();
  const bool learns = std::ranges::any_of(
      own, [](const at::Tensor& parameter) { return parameter.requires_grad(); });
  const at::Tensor first =
      at::full({1}, learns ? -pipeline.stage() : -pipeline.stages(), at::kLong);
  model.group->all_reduce(first, distributed::Reduce::kMax, "which stages learn");
  return -first.item<int64_t>();
}

void add_to(at::Tensor& sum, const at::Tensor& part) { sum = sum.defined() ? sum + part : part; }

}  // namespace

PipelineStep::PipelineStep(distributed::ScheduleKind schedule, bool recomputes,
                           const RankModel& model, distributed::Strategy& strategy,
                           StepGraph& passes, Timeline& timeline)
    : schedule_(schedule),
      recomputes_(recomputes),
      model_(model),
      pipeline_(*model.pipeline),
      first_learning_(first_learning(model)),
      sequence_(dynamic_cast<nn::Stage&>(*model.module).whole()),
      strategy_(strategy),
      passes_(passes),
      timeline_(timeline) {
  const c10::Device device = model.device;
  if (device.is_cpu()) return;
  arrivals_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

bool PipelineStep::prepare(int64_t micro_batch_size, const std::function<void()>& work,
                           std::string& shortage) {
  room_ = {};
  const bool fits = device::fits(
      [&] {
        work();
        room_ = pipeline_.room_for_messages(micro_batch_size, model_.device);
      },
      &shortage);
  timeline_.enter(Phase::kCommunication);
  return !model_.group->any(!fits, kStagesOutcome);
}

// Every rank comes to its end, whatever happens to it on the way: once short, a rank takes no more
// memory.
std::optional<PipelineStep::Losses> PipelineStep::run(
    data::DevicePrefetcher& inputs, const std::vector<data::BatchPlan>& micro_batches,
    bool wants_unsmoothed, std::string& shortage) {
  const double start_s = now_s();
  waited_s_ = 0;
  micro_batches_ = &micro_batches;
  wants_unsmoothed_ = wants_unsmoothed;
  has_summed_ = is_short_ = false;
  losses_ = {};
  flights_.clear();
  casts_.reset();
  activations_in_ = gradients_in_ = {};
  activations_out_ = gradients_out_ = {};
  const auto actions = distributed::stage_actions(schedule_, pipeline_.stages(), pipeline_.stage(),
                                                  static_cast<int64_t>(micro_batches.size()));
  for (size_t i = 0; i < actions.size(); ++i) {
    const distributed::StageAction& action = actions[i];
    const auto* next = i + 1 < actions.size() ? &actions[i + 1] : nullptr;
    if (!is_short_) {
      try {
        is_short_ = !device::fits([&] { take(action, next, inputs); }, &shortage);
      } catch (const Error& error) {
        if (error.status() != Exit::kStopped) throw;
        is_short_ = true;
      }
      if (is_short_) {
        flights_.clear();
        casts_.reset();
      }
    }
    if (is_short_) take_part(action);
  }
  timeline_.enter(Phase::kCommunication);
  for (Messages* out : {&activations_out_, &gradients_out_}) finish_sends(*out, out->begun);
  const double tell_s = now_s();
  if (model_.group->any(is_short_, kStagesOutcome)) return std::nullopt;
  pipeline_.add_up_shared();
  waited_s_ += now_s() - tell_s;
  compute_s_ += now_s() - start_s - waited_s_;
  const at::Tensor zero = at::zeros({}, at::device(model_.device).dtype(at::kFloat));
  if (!losses_.loss.defined()) losses_ = {zero, zero};
  return losses_;
}

void PipelineStep::take(const distributed::StageAction& action,
                        const distributed::StageAction* next, data::DevicePrefetcher& inputs) {
  const auto micro_batch = static_cast<size_t>(action.micro_batch);
  action.is_backward ? backward(micro_batch) : forward(micro_batch, inputs);
  // While this one computes. Before anything else for which the host may wait for the device: what
  // the neighbour waits for has been sent.
  if (next != nullptr && has_messages(next->is_backward, /*is_sender=*/false)) {
    start_receiving(next->is_backward, static_cast<size_t>(next->micro_batch));
  }
  if (!action.is_backward) inputs.prefetch();
}

void PipelineStep::forward(size_t micro_batch, data::DevicePrefetcher& inputs) {
  const data::DevicePrefetcher::Input* batch = inputs.next();  // phases data_wait, copy, transform
  if (micro_batch == 0) strategy_.before_forward(/*sums=*/false);
  Flight flight;
  flight.model_inputs = flight.inputs = batch->tensors.inputs;
  if (!pipeline_.is_first()) {
    flight.inputs = receive(/*gradients=*/false, micro_batch);
    flight.inputs.requires_grad_(has_messages(/*gradients=*/true, /*is_sender=*/true));
    receive_ahead(/*gradients=*/false, micro_batch + 1);
  }
  timeline_.enter(Phase::kForward);
  if (micro_batch == 0 && model_.shares_casts(recomputes_)) casts_.emplace();
  sequence_.begin(flight.model_inputs);
  if (pipeline_.is_last()) {
    data::DeviceBatch own = batch->tensors;
    own.inputs = flight.inputs;
    const double share =
        batch->weight < batch->step_weight
            ? static_cast<double>(batch->weight) / static_cast<double>(batch->step_weight)
            : 1.0;
    flight.pass = passes_.forward(own, share, /*is_first=*/micro_batch == 0, wants_unsmoothed_);
    add_to(losses_.loss, flight.pass.loss);
    if (flight.pass.unsmoothed.defined()) add_to(losses_.unsmoothed, flight.pass.unsmoothed);
  } else {
    {
      const amp::Autocast autocast(model_.device.type(), model_.precision);
      flight.outputs = model_.module->forward(flight.inputs);
    }
    send(/*gradients=*/false, pipeline_.outputs().pack(flight.outputs));
    receive_ahead(/*gradients=*/true, gradients_in_.begun - gradients_in_.under_way.size());
  }
  flights_[micro_batch] = std::move(flight);
  // Backward frees them as it proceeds.
  if (micro_batch + 1 == micro_batches_->size()) casts_.reset();
}

void PipelineStep::backward(size_t micro_batch) {
  Flight flight = std::move(flights_.extract(micro_batch).mapped());
  const bool sums = micro_batch + 1 == micro_batches_->size();
  at::Tensor gradient;
  if (has_messages(/*gradients=*/true, /*is_sender=*/false)) {
    gradient = receive(/*gradients=*/true, micro_batch);
    receive_ahead(/*gradients=*/true, micro_batch + 1);
  } else if (!pipeline_.is_last()) {  // it would run ahead, with all that it has sent
    timeline_.enter(Phase::kCommunication);
    const double start_s = now_s();
    finish_sends(activations_out_, micro_batch + 1);
    waited_s_ += now_s() - start_s;
  }
  if (recomputes_) sequence_.begin(flight.model_inputs);
  timeline_.enter(Phase::kCommunication);
  if (sums) strategy_.before_forward(/*sums=*/true);
  timeline_.enter(Phase::kBackward);
  const at::Tensor& from = pipeline_.is_last() ? flight.pass.scaled : flight.outputs;
  const auto compute = [&] {
    if (pipeline_.is_last()) {
      passes_.backward(flight.pass);
    } else if (from.requires_grad()) {
      from.backward(gradient);
    }
  };
  (void)strategy_.backward(from, sums, compute);  // the outcome is that of all stages
  if (sums) has_summed_ = true;
  timeline_.move(Phase::kBackward, Phase::kCommunication, strategy_.exposed_s());
  waited_s_ += strategy_.exposed_s();
  if (!has_messages(/*gradients=*/true, /*is_sender=*/true)) return;
  const at::Tensor& gradients = flight.inputs.grad();
  send(/*gradients=*/true,
       pipeline_.inputs().pack(gradients.defined() ? gradients : at::zeros_like(flight.inputs)));
}

void PipelineStep::take_part(const distributed::StageAction& action) {
  timeline_.enter(Phase::kCommunication);
  const auto micro_batch = static_cast<size_t>(action.micro_batch);
  const bool gradients = action.is_backward;
  if (has_messages(gradients, /*is_sender=*/false)) (void)receive(gradients, micro_batch);
  if (gradients && micro_batch + 1 == micro_batches_->size() && !std::exchange(has_summed_, true)) {
    strategy_.give_up();
  }
  Messages& out = gradients ? gradients_out_ : activations_out_;
  if (!has_messages(gradients, /*is_sender=*/true) || out.begun > micro_batch) return;
  send(gradients, memory_for(gradients, /*is_sender=*/true, micro_batch));
}

bool PipelineStep::has_messages(bool gradients, bool is_sender) const {
  const bool is_before = gradients == is_sender;
  if (is_before ? pipeline_.is_first() : pipeline_.is_last()) return false;
  return !gradients || first_learning_ < pipeline_.stage() + (is_before ? 0 : 1);
}

const distributed::MessageShape& PipelineStep::shape(bool gradients, bool is_sender) const {
  return gradients == is_sender ? pipeline_.inputs() : pipeline_.outputs();
}

at::Tensor PipelineStep::memory_for(bool gradients, bool is_sender, size_t micro_batch) const {
  const int64_t samples = (*micro_batches_)[micro_batch].count;
  if (!is_short_) return shape(gradients, is_sender).empty(samples, model_.device);
  return (gradients == is_sender ? room_.before : room_.after).narrow(0, 0, samples);
}

void PipelineStep::receive_ahead(bool gradients, size_t micro_batch) {
  if (!model_.device.is_cpu() || !has_messages(gradients, /*is_sender=*/false)) return;
  start_receiving(gradients, micro_batch);
}

void PipelineStep::start_receiving(bool gradients, size_t micro_batch) {
  Messages& in = gradients ? gradients_in_ : activations_in_;
  c10::OptionalStreamGuard guard;  // a message waits for no work that is enqueued already
  if (arrivals_) guard.reset_stream(*arrivals_);
  for (; in.begun <= micro_batch && in.begun < micro_batches_->size(); ++in.begun) {
    const at::Tensor into = memory_for(gradients, /*is_sender=*/false, in.begun);
    in.under_way.emplace_back(
        into, gradients ? pipeline_.receive_gradients(into) : pipeline_.receive_activations(into));
  }
}

at::Tensor PipelineStep::receive(bool gradients, size_t micro_batch) {
  timeline_.enter(Phase::kCommunication);
  const double start_s = now_s();
  start_receiving(gradients, micro_batch);
  Messages& in = gradients ? gradients_in_ : activations_in_;
  // An action that failed may have taken its message already.
  if (in.begun - in.under_way.size() > micro_batch) return {};
  auto [tensor, pending] = std::move(in.under_way.front());
  in.under_way.pop_front();
  pending.wait();
  if (arrivals_) tensor.record_stream(device::current_stream(arrivals_->device()));
  // Where its gradients are back, a micro-batch's activations have arrived.
  if (gradients) finish_sends(activations_out_, in.begun - in.under_way.size());
  waited_s_ += now_s() - start_s;
  return tensor;
}

void PipelineStep::send(bool gradients, const at::Tensor& message) {
  Messages& out = gradients ? gradients_out_ : activations_out_;
  out.under_way.emplace_back(
      message, gradients ? pipeline_.send_gradients(message) : pipeline_.send_activations(message));
  out.begun += 1;
  // The stage before takes them one by one, whatever this one does.
  if (gradients && out.begun > kGradientsUnderWay) {
    finish_sends(out, out.begun - kGradientsUnderWay);
  }
}

/// Waits for the messages of the first `count` micro-batches, and lets go of them.
void PipelineStep::finish_sends(Messages& out, size_t count) {
  while (out.begun - out.under_way.size() < count) {
    out.under_way.front().second.wait();
    out.under_way.pop_front();
  }
}

}  // namespace brim::train
