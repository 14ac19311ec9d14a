// Needs a GPU: steps as CUDA graphs give the losses and weights of steps without, to the bit where
// operators allow it.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "framework/device/choice.h"
#include "framework/recipe/document.h"
#include "framework/train/trainer.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/gpu.h"

namespace brim::train {
namespace {

constexpr int kSteps = 16;

constexpr const char* kEach = R"(
[checkpoint]
enabled = false
[telemetry]
tensorboard = false
every_steps = 1
[device]
select = "cuda:0"
)";

// All its operators give the same bits each time. Micro-batches of 6, 5 and 5 add up.
constexpr const char* kMlp = R"(
[run]
name = "graph"
deterministic = true
[model]
name = "mlp"
[train]
steps = 16
clip_norm = 1.0
ema = 0.9
[data]
kind = "synthetic"
samples = 320
eval_samples = 0
[batch]
global = 16
micro = 6
[optimizer]
name = "sgd"
[schedule]
name = "cosine"
)";

// Deterministic: convolutions' gradients are sums whose order would otherwise vary.
constexpr const char* kResnet = R"(
[run]
name = "graph"
deterministic = true
[model]
name = "resnet18"
[train]
steps = 16
[data]
kind = "synthetic"
samples = 320
eval_samples = 0
[batch]
global = 16
[optimizer]
name = "sgd"
learning_rate = 0.01
)";

// Dropout: each replay must draw numbers of its own.
constexpr const char* kGpt = R"(
[run]
name = "graph"
[train]
steps = 16
[model]
name = "gpt"
layers = 2
width = 64
heads = 2
dropout = 0.1
[data]
kind = "synthetic_tokens"
samples = 320
eval_samples = 0
length = 32
vocabulary = 256
[batch]
global = 8
[optimizer]
name = "adamw"
learning_rate = 0.001
)";

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
  std::string said;
};

Trained train(const std::string& recipe, bool cuda_graph) {
  JobConfig job = read_job(recipe::parse(recipe, "graph.toml"));
  job.train.cuda_graph = cuda_graph;
  const testing::TemporaryFolder folder;
  const RunFolder run{folder.path(), std::nullopt};
  create_run_folder(run, "", nlohmann::json::object());
  const c10::Device device = device::choose_device(job.device);
  const auto memory = device::memory_of(device, job.device);
  TrainingComponents components = build_components(job, device, distributed::Group::alone());
  const auto model = components.model.module;
  Trained result;
  ::testing::internal::CaptureStderr();
  {
    Trainer trainer(job, std::move(components), TrainState{}, run, *memory);
    trainer.run();
  }
  result.said = ::testing::internal::GetCapturedStderr();
  std::ifstream metrics(run.metrics());
  for (std::string text; std::getline(metrics, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line.contains("loss")) result.losses.push_back(line["loss"].get<double>());
  }
  for (const at::Tensor& weight : model->parameters()) {
    result.weights.push_back(weight.detach().cpu());
  }
  for (const at::Tensor& buffer : model->buffers()) result.weights.push_back(buffer.cpu());
  at::globalContext().setDeterministicAlgorithms(false,
                                                 false);  // a job turns it on for its process
  at::globalContext().setDeterministicCuDNN(false);
  return result;
}

struct Job {
  const char* model;
  const char* recipe;
  const char* precision;
  double tolerance;  // of a loss, as a share of it; 0: the same bits
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.model << ' ' << job.precision; }

class GpuGraph : public OnGpu {};

class GpuGraphOf : public GpuGraph, public ::testing::WithParamInterface<Job> {};

TEST_P(GpuGraphOf, TrainsAsStepsWithout) {
  const std::string recipe = GetParam().recipe + std::string("[precision]\nmode = \"") +
                             GetParam().precision + "\"\n" + kEach;
  const Trained with = train(recipe, true), without = train(recipe, false);
  EXPECT_THAT(with.said, ::testing::Not(::testing::HasSubstr("given up")));
  ASSERT_EQ(with.losses.size(), kSteps);
  ASSERT_EQ(without.losses.size(), kSteps);
  for (size_t i = 0; i < with.losses.size(); ++i) {
    EXPECT_NEAR(with.losses[i], without.losses[i], GetParam().tolerance * without.losses[i]) << i;
  }
  ASSERT_EQ(with.weights.size(), without.weights.size());
  for (size_t i = 0; i < with.weights.size() && GetParam().tolerance == 0; ++i) {
    EXPECT_TRUE(at::equal(with.weights[i], without.weights[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, GpuGraphOf,
                         ::testing::Values(Job{"mlp", kMlp, "fp32", 0}, Job{"mlp", kMlp, "fp16", 0},
                                           Job{"mlp", kMlp, "bf16", 0},
                                           Job{"resnet", kResnet, "fp32", 0},
                                           Job{"resnet", kResnet, "bf16", 0},
                                           Job{"resnet", kResnet, "fp16", 0},
                                           Job{"gpt", kGpt, "fp32", 0.002}));

/// Work that waits for the device can't be recorded, and what was there before still works.
TEST_F(GpuGraph, ARecordingThatFailsLeavesTheDeviceAsItWas) {
  const at::TensorOptions gpu = at::device(at::Device(at::kCUDA, 0)).dtype(at::kFloat);
  const auto recorder = device::cuda().backend->make_graph_recorder(0);
  at::manual_seed(1);
  const at::Tensor expected = at::rand({4}, gpu).cpu();
  at::manual_seed(1);
  const at::Tensor x = at::ones({4}, gpu);
  EXPECT_ANY_THROW(recorder->record([&] { (at::rand({4}, gpu) + x).sum().item<float>(); }));
  EXPECT_TRUE(at::equal(at::rand({4}, gpu).cpu(), expected));
  at::Tensor y;
  const auto recording = recorder->record([&] { y = x * 2; });
  x.fill_(3);
  recording->launch();
  EXPECT_EQ(y.sum().item<float>(), 24);
}

}  // namespace
}  // namespace brim::train
