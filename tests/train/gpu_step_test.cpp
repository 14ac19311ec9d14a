// Needs a GPU: but for its first one, a training step never makes the host wait for the device.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "framework/device/choice.h"
#include "framework/recipe/document.h"
#include "framework/train/trainer.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/gpu.h"

namespace brim::train {
namespace {

constexpr const char* kRecipe = R"(
[run]
name = "gpu"
[model]
name = "resnet18"
[data]
kind = "synthetic"
samples = 320
eval_samples = 0
[batch]
global = 16
micro = 8
[optimizer]
name = "sgd"
[train]
steps = 20
clip_norm = 1.0
ema = 0.9
[telemetry]
tensorboard = false
[device]
select = "cuda:0"
[precision]
)";

class GpuStep : public OnGpu {
 protected:
  void TearDown() override {
    if (device::cuda().backend == nullptr) return;
    device::cuda().backend->set_sync_debug_mode(device::SyncDebugMode::kOff);
  }
};

class GpuStepIn : public GpuStep, public ::testing::WithParamInterface<std::string> {};

TEST_P(GpuStepIn, TwentyStepsWithoutAHostSync) {
  const JobConfig job =
      read_job(recipe::parse(kRecipe + ("mode = \"" + GetParam() + "\"\n"), "gpu.toml"));
  device::DeviceConfig gpu;
  gpu.select = "cuda:0";
  const c10::Device device = device::choose_device(gpu);
  const auto memory = device::memory_of(device, job.device);
  auto components = build_components(job, device, distributed::Group::alone());
  TrainingStep taker(job, components, /*finished_steps=*/0, {}, *memory);
  taker.take();  // measures forms of operations, for which it waits
  device::cuda().backend->set_sync_debug_mode(device::SyncDebugMode::kError);
  for (int step = 1; step < 20; ++step) {
    ASSERT_NO_THROW(taker.take()) << "step " << step;
    while (taker.values().pop(/*wait=*/false)) {
    }
  }
}

TEST_F(GpuStep, PhasesAreTheDevicesAndSumToTheStep) {
  const testing::TemporaryFolder folder;
  const JobConfig job =
      read_job(recipe::parse(std::string(kRecipe) + "mode = \"fp32\"\n", "gpu.toml"));
  const RunFolder run{folder.path(), std::nullopt};
  create_run_folder(run, "", nlohmann::json::object());
  const c10::Device device = device::choose_device(job.device);
  const auto memory = device::memory_of(device, job.device);
  Trainer trainer(job, build_components(job, device, distributed::Group::alone()), TrainState{},
                  run, *memory);
  trainer.run();
  std::ifstream metrics(run.metrics());
  int lines = 0;
  for (std::string text; std::getline(metrics, text);) {
    const auto line = nlohmann::json::parse(text);
    if (!line.contains("loss")) continue;  // the run's end
    double sum = 0;
    for (const auto& [name, seconds] : line["phases_s"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, line["step_s"].get<double>(), 0.005 * line["step_s"].get<double>());
    for (const char* phase : {"forward", "backward", "copy"}) {
      EXPECT_GT(line["phases_s"][phase].get<double>(), 0) << phase;
    }
    if (lines > 0) {  // as above
      EXPECT_EQ(line["device"]["host_syncs"].get<double>(), 0);
    }
    ++lines;
  }
  EXPECT_EQ(lines, 2);
}

INSTANTIATE_TEST_SUITE_P(Precisions, GpuStepIn, ::testing::Values("bf16", "fp16", "fp32", "tf32"));

}  // namespace
}  // namespace brim::train
