// Passes that are recorded train as passes that are run, shown on the CPU by a recorder that plays
// a graph's part: it keeps the work, and a launch does it into the memory that the work had made.
#include "framework/train/step/step_graph.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "framework/data/transfer/to_device.h"
#include "framework/train/components.h"

namespace brim::train {
namespace {

using ::testing::HasSubstr;

/// What recorders of a test have been asked for.
struct Log {
  int runs = 0, records = 0, launches = 0, alive = 0;
  int fails_at = 0;  // the record() that throws; 0: none
};

class ScriptedRecording final : public device::Recording {
 public:
  ScriptedRecording(Log& log, std::function<void()> work, std::vector<at::Tensor> parameters)
      : log_(log), work_(std::move(work)), parameters_(std::move(parameters)) {
    ++log_.alive;
    for (const auto& parameter : parameters_) gradients_.push_back(parameter.grad());
  }
  ~ScriptedRecording() override { --log_.alive; }

  void launch() override {
    ++log_.launches;
    const at::AutoGradMode with_grad(true);
    work_();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor made = parameters_[i].grad();
      if (gradients_[i].defined() && made.defined()) gradients_[i].copy_(made);
    }
  }

 private:
  Log& log_;
  std::function<void()> work_;
  std::vector<at::Tensor> parameters_, gradients_;
};

class ScriptedRecorder final : public device::GraphRecorder {
 public:
  ScriptedRecorder(Log& log, std::vector<at::Tensor> parameters)
      : log_(log), parameters_(std::move(parameters)) {}

  void run(const std::function<void()>& work) override {
    ++log_.runs;
    work();
  }
  void hand_over(const at::Tensor& tensor) override { EXPECT_TRUE(tensor.defined()); }

  /// The work is done, for it must make its tensors; what it adds to gradients is taken back.
  std::unique_ptr<device::Recording> record(const std::function<void()>& work) override {
    std::vector<std::pair<at::Tensor, at::Tensor>> before;
    for (const auto& parameter : parameters_) {
      if (parameter.grad().defined()) {
        before.emplace_back(parameter.grad(), parameter.grad().clone());
      }
    }
    work();
    const at::NoGradGuard no_grad;
    for (const auto& [gradient, values] : before) gradient.copy_(values);
    if (++log_.records == log_.fails_at) {
      throw std::runtime_error("it waits for the device\nat some place");
    }
    return std::make_unique<ScriptedRecording>(log_, work, parameters_);
  }

 private:
  Log& log_;
  std::vector<at::Tensor> parameters_;
};

/// Parameters that a task makes its loss of.
struct Parameters : nn::Model {
  explicit Parameters(const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) register_parameter(std::to_string(i), tensors[i]);
  }
  at::Tensor forward(const at::Tensor& inputs) override { return inputs; }
};

using Loss = std::function<at::Tensor(const data::DeviceBatch&)>;

struct LossTask : Task {
  explicit LossTask(Loss loss) : of(std::move(loss)) {}
  at::Tensor loss(nn::Model& /*model*/, const data::DeviceBatch& batch) const override {
    return of(batch);
  }
  /// As if the loss were half as large without smoothing.
  Losses losses(nn::Model& /*model*/, const data::DeviceBatch& batch) const override {
    const at::Tensor loss = of(batch);
    return {loss, loss.detach() / 2};
  }
  at::Tensor evaluation_sums(nn::Model& /*model*/, const data::DeviceBatch&) const override {
    return {};
  }
  Metrics metrics(const at::Tensor& /*sums*/) const override { return {}; }
  BestBy best_by() const override { return {}; }
  Loss of;
};

TrainingComponents components_of(const std::vector<at::Tensor>& parameters, Loss loss) {
  TrainingComponents components;
  components.model.module = std::make_shared<Parameters>(parameters);
  components.task = std::make_unique<LossTask>(std::move(loss));
  components.scaler = std::make_unique<amp::GradScaler>(c10::kCPU, amp::GradScalerConfig(), false);
  return components;
}

/// A line through samples, and StepGraph around its loss.
class Line {
 public:
  explicit Line(Log* log)
      : weight_(at::full({3, 1}, 0.5).requires_grad_()),
        components_(components_of({weight_}, [this](const data::DeviceBatch& batch) {
          if (draws) at::rand({1});
          return (batch.inputs.matmul(weight_) - batch.labels).square().mean();
        })) {
    std::unique_ptr<device::GraphRecorder> recorder;
    if (log != nullptr) {
      recorder = std::make_unique<ScriptedRecorder>(*log, std::vector<at::Tensor>{weight_});
    }
    graph_.emplace(components_.model, *components_.task, *components_.scaler, std::move(recorder));
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  /// The step's loss. Micro-batches of these sizes, of samples that follow from `step`.
  double step(int step, const std::vector<int64_t>& sizes) {
    int64_t all = 0;
    for (const int64_t size : sizes) all += size;
    double loss = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const at::Tensor inputs =
          at::arange(3 * sizes[i]).view({sizes[i], 3}).to(at::kFloat).sin() + 0.1 * step;
      const data::DeviceBatch batch = {inputs, inputs.sum(1, /*keepdim=*/true), {}, {}};
      const double share = static_cast<double>(sizes[i]) / static_cast<double>(all);
      const bool wants_unsmoothed = step % 2 == 1;
      const StepGraph::Pass pass = graph_->forward(batch, share, i == 0, wants_unsmoothed);
      graph_->backward(pass);
      loss += pass.loss.item<double>();
      if (wants_unsmoothed) {
        EXPECT_EQ(pass.unsmoothed.item<double>(), pass.loss.item<double>() / 2) << "step " << step;
      }
    }
    const at::NoGradGuard no_grad;
    weight_.sub_(0.05 * weight_.grad());
    weight_.mutable_grad().reset();
    return loss;
  }

  bool draws = false;
  StepGraph& graph() { return *graph_; }
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
  TrainingComponents components_;
  std::optional<StepGraph> graph_;
};

/// Losses and weights of `steps` steps are those of passes that are run.
void expect_as_run(Line& line, int steps, const std::vector<int64_t>& sizes) {
  Line run(nullptr);
  for (int step = 0; step < steps; ++step) {
    EXPECT_EQ(line.step(step, sizes), run.step(step, sizes)) << "step " << step;
    EXPECT_TRUE(at::equal(line.weight(), run.weight())) << "step " << step;
  }
}

TEST(StepGraph, RecordedPassesTrainAsPassesThatAreRun) {
  Log log;
  Line line(&log);
  expect_as_run(line, 8, {4});
  EXPECT_EQ(log.runs, 2 * GraphPlan::kWarmUps);
  EXPECT_EQ(log.records, 2);
  EXPECT_EQ(log.launches, 2 * (8 - GraphPlan::kWarmUps));
}

TEST(StepGraph, MicroBatchesOfUnequalSizesAddUp) {
  Log log;
  Line line(&log);
  expect_as_run(line, 12, {4, 3, 3});
  EXPECT_EQ(log.records, 4);  // the first one's and the later ones', forward and backward
  EXPECT_EQ(log.alive, 4);
}

TEST(StepGraph, AShapeOfItsOwnIsRunInBetween) {
  Log log;
  Line line(&log), run(nullptr);
  for (int step = 0; step < 10; ++step) {
    const std::vector<int64_t> sizes = {step == 6 ? 2 : 4};
    EXPECT_EQ(line.step(step, sizes), run.step(step, sizes)) << "step " << step;
  }
  EXPECT_TRUE(at::equal(line.weight(), run.weight()));
  EXPECT_EQ(log.records, 2);
}

class StepGraphFailing : public ::testing::TestWithParam<int> {};

TEST_P(StepGraphFailing, ARecordingThatFailsTrainsNothingAndIsGivenUp) {
  Log log{.fails_at = GetParam()};
  Line line(&log);
  ::testing::internal::CaptureStderr();
  expect_as_run(line, 9, {4, 4});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("train.cuda_graph is disabled; training continues without it: it "
                        "waits for the device\n"));
  EXPECT_EQ(log.alive, 0);
  EXPECT_EQ(log.records, GetParam());
}

// Forward and backward of the first pass and of the second one.
INSTANTIATE_TEST_SUITE_P(Each, StepGraphFailing, ::testing::Values(1, 2, 3, 4));

TEST(StepGraph, RandomNumbersOfTheHostAreNotRecorded) {
  Log log;
  Line line(&log), run(nullptr);
  line.draws = run.draws = true;
  ::testing::internal::CaptureStderr();
  at::manual_seed(1);
  for (int step = 0; step < 6; ++step) line.step(step, {4});
  const at::Tensor after = at::rand({1});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the host draws random numbers"));
  at::manual_seed(1);
  for (int step = 0; step < 6; ++step) run.step(step, {4});
  EXPECT_TRUE(at::equal(after, at::rand({1})));
  EXPECT_TRUE(at::equal(line.weight(), run.weight()));
}

TEST(StepGraph, WhatIsReleasedIsRecordedAgain) {
  Log log;
  Line line(&log), run(nullptr);
  for (int step = 0; step < 10; ++step) {
    if (step == 6) {
      line.graph().release();
      EXPECT_EQ(log.alive, 0);
    }
    EXPECT_EQ(line.step(step, {4}), run.step(step, {4}));
  }
  EXPECT_EQ(log.records, 4);
  EXPECT_EQ(log.runs, 2 * GraphPlan::kWarmUps);
}

TEST(StepGraph, AfterAResetPassesWarmUpAgain) {
  Log log;
  Line line(&log), run(nullptr);
  for (int step = 0; step < 10; ++step) {
    if (step == 5) line.graph().reset();
    EXPECT_EQ(line.step(step, {4}), run.step(step, {4}));
  }
  EXPECT_EQ(log.runs, 2 * 2 * GraphPlan::kWarmUps);
}

TEST(StepGraph, ParametersWithoutAGradientKeepNone) {
  const at::Tensor used = at::ones({1}).requires_grad_(), unused = at::ones({1}).requires_grad_();
  Log log;
  const std::vector<at::Tensor> parameters = {unused, used};
  const TrainingComponents components = components_of(
      parameters, [&](const data::DeviceBatch& batch) { return (used * batch.inputs).sum(); });
  StepGraph graph(components.model, *components.task, *components.scaler,
                  std::make_unique<ScriptedRecorder>(log, parameters));
  for (int step = 0; step < 6; ++step) {
    const data::DeviceBatch batch = {at::full({2}, 3.0F), at::zeros({2}), {}, {}};
    graph.backward(graph.forward(batch, 1.0, true));
    EXPECT_FALSE(unused.grad().defined());
    EXPECT_EQ(used.grad().item<float>(), 6);
    used.mutable_grad().reset();
  }
  EXPECT_GT(log.launches, 0);
}

}  // namespace
}  // namespace brim::train
