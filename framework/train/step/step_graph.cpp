#include "framework/train/step/step_graph.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <array>
#include <exception>
#include <utility>

#include "framework/amp/autocast.h"
#include "framework/amp/grad_scaler.h"
#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/data/transfer/to_device.h"
#include "framework/nn/wrap.h"
#include "framework/train/rank_model.h"
#include "framework/train/tasks/task.h"

namespace brim::train {
namespace {

std::array<at::Tensor data::DeviceBatch::*, 4> members() {
  using Batch = data::DeviceBatch;
  return {&Batch::inputs, &Batch::labels, &Batch::partner_labels, &Batch::label_shares};
}

PassShape shape_of(const data::DeviceBatch& batch) {
  PassShape shape;
  for (const auto member : members()) {
    const at::Tensor& tensor = batch.*member;
    if (!tensor.defined()) {
      shape.push_back(-1);
      continue;
    }
    shape.push_back(static_cast<int64_t>(tensor.scalar_type()));
    shape.push_back(tensor.dim());
    shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  }
  return shape;
}

/// Memory of the batch's shape and order.
data::DeviceBatch make_like(const data::DeviceBatch& batch) {
  data::DeviceBatch result;
  for (const auto member : members()) {
    if ((batch.*member).defined()) result.*member = at::empty_like(batch.*member);
  }
  return result;
}

void copy(const data::DeviceBatch& from, data::DeviceBatch& to) {
  for (const auto member : members()) {
    if ((from.*member).defined()) (to.*member).copy_(from.*member, /*non_blocking=*/true);
  }
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : parameters) result.push_back(parameter.grad());
  return result;
}

void set_gradients(std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (gradients[i].defined() || parameters[i].grad().defined()) {
      parameters[i].mutable_grad() = gradients[i];
    }
  }
}

}  // namespace

struct StepGraph::Graph {
  data::DeviceBatch inputs;           // that it reads
  Pass pass;                          // with the loss that it writes
  std::vector<at::Tensor> gradients;  // the same, by parameter; undefined: it has none
  std::unique_ptr<device::Recording> forward, backward;
};

StepGraph::StepGraph(const RankModel& model, const Task& task, amp::GradScaler& scaler,
                     std::unique_ptr<device::GraphRecorder> recorder)
    : model_(model), task_(task), scaler_(scaler), recorder_(std::move(recorder)) {
  for (const auto& parameter : model.module->parameters()) {
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  }
  if (recorder_ == nullptr) return;
  graphs_.resize(GraphPlan::kMaxGraphs);
  share_ = at::ones({}, at::device(model.device).dtype(model.precision.parameters()));
}

StepGraph::~StepGraph() = default;

/// Throws Error(kRecipe) unless a backward pass can begin there.
void StepGraph::check(const at::Tensor& loss) const {
  if (!loss.defined() || loss.dim() != 0 || !loss.is_floating_point()) {
    throw Error(Exit::kRecipe, "the task's loss(): expected a floating-point tensor [], found {}",
                nn::text_of(loss));
  }
  if (loss.requires_grad()) return;
  throw Error(
      Exit::kRecipe, "the task's loss(): expected a tensor with a gradient, found one without; {}",
      parameters_.empty() ? "no parameter of the model asks for one (requires_grad)"
                          : "look for detach() and NoGradGuard in the model's forward() and "
                            "in loss()");
}

/// Every pass, run or recorded, is computed here. `share` may be on the CPU; undefined: 1.
StepGraph::Pass StepGraph::compute(const data::DeviceBatch& batch, const at::Tensor& share,
                                   bool wants_unsmoothed) {
  Losses losses;
  {
    const amp::Autocast autocast(model_.device.type(), model_.precision);
    if (wants_unsmoothed) {
      losses = task_.losses(*model_.module, batch);
    } else {
      losses.loss = task_.loss(*model_.module, batch);
    }
  }
  if (!std::exchange(is_checked_, true)) check(losses.loss);
  if (share.defined()) {
    losses.loss = losses.loss * share;
    if (losses.unsmoothed.defined()) losses.unsmoothed = losses.unsmoothed * share;
  }
  return {losses.loss.detach(), losses.unsmoothed, scaler_.scale(losses.loss)};
}

StepGraph::Pass StepGraph::forward(const data::DeviceBatch& batch, double share, bool is_first,
                                   bool wants_unsmoothed) {
  replayed_ = nullptr;
  if (recorder_ == nullptr) return run(batch, share, wants_unsmoothed);
  const GraphPlan::Choice choice = plan_.next(shape_of(batch), is_first);
  if (choice.mode == GraphPlan::Mode::kRun) return run(batch, share, wants_unsmoothed);
  Graph& graph = graphs_[choice.graph];
  if (choice.mode == GraphPlan::Mode::kRecord) {
    if (!record(batch, graph)) return run(batch, share, wants_unsmoothed);
    plan_.recorded(choice.graph);
  }
  return replay(batch, share, graph);
}

StepGraph::Pass StepGraph::run(const data::DeviceBatch& batch, double share,
                               bool wants_unsmoothed) {
  at::Tensor factor;
  if (share < 1) factor = at::scalar_tensor(share, model_.precision.parameters());
  if (recorder_ == nullptr) return compute(batch, factor, wants_unsmoothed);
  Pass pass;
  recorder_->run([&] { pass = compute(batch, factor, wants_unsmoothed); });
  recorder_->hand_over(pass.loss);
  if (pass.unsmoothed.defined()) recorder_->hand_over(pass.unsmoothed);
  return pass;
}

/// Trains nothing: what is recorded is not run.
bool StepGraph::record(const data::DeviceBatch& batch, Graph& graph) {
  const std::vector<at::Tensor> before = gradients_of(parameters_);
  at::Generator host = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor host_before = host.get_state();
  std::string reason;
  try {
    graph.inputs = make_like(batch);
    graph.forward = recorder_->record(
        [&] { graph.pass = compute(graph.inputs, share_, /*wants_unsmoothed=*/true); });
    graph.backward = recorder_->record([&] { graph.pass.scaled.backward(); });
    graph.pass.scaled = at::Tensor();  // the memory of its way back is the recording's now
    graph.gradients = gradients_of(parameters_);
    if (!at::equal(host.get_state(), host_before)) {
      reason = "the host draws random numbers for it, which a recording would draw only once";
    }
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  set_gradients(parameters_, before);
  if (reason.empty()) return true;
  host.set_state(host_before);
  give_up(reason);
  return false;
}

StepGraph::Pass StepGraph::replay(const data::DeviceBatch& batch, double share, Graph& graph) {
  const at::NoGradGuard no_grad;
  copy(batch, graph.inputs);
  share_.fill_(share);
  graph.forward->launch();
  replayed_ = &graph;
  const at::Tensor& unsmoothed = graph.pass.unsmoothed;
  return {graph.pass.loss.clone(), unsmoothed.defined() ? unsmoothed.clone() : unsmoothed,
          at::Tensor()};
}

void StepGraph::backward(const Pass& pass) {
  if (replayed_ != nullptr) {
    replayed_->backward->launch();
    set_gradients(parameters_, replayed_->gradients);
  } else if (recorder_ != nullptr) {
    const std::vector<at::Tensor> before = gradients_of(parameters_);
    recorder_->run([&] { pass.scaled.backward(); });
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!before[i].defined() && parameters_[i].grad().defined()) {
        recorder_->hand_over(parameters_[i].grad());
      }
    }
  } else {
    pass.scaled.backward();
  }
}

void StepGraph::release() {
  replayed_ = nullptr;
  for (Graph& graph : graphs_) graph = {};
  plan_.release();
}

void StepGraph::reset() {
  release();
  plan_.reset();
}

void StepGraph::give_up(const std::string& reason) {
  log::warning("train.cuda_graph is disabled; training continues without it: {}",
               reason.substr(0, reason.find('\n')));
  recorder_.reset();
  release();
}

}  // namespace brim::train
