// Needs a GPU: the training step never makes the host wait for the device.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "framework/device/choice.h"
#include "framework/device/cuda_loader.h"
#include "framework/recipe/document.h"
#include "framework/train/trainer.h"
#include "models/register.h"
#include "tests/telemetry/temporary_folder.h"

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

class GpuStep : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    models::register_all();
    data::register_sources();
    data::register_samplers();
    optim::register_optimizers();
    optim::register_schedules();
    register_tasks();
  }
  void SetUp() override {
    if (device::cuda().backend == nullptr) GTEST_SKIP() << device::cuda().why_not;
  }
  void TearDown() override {
    if (device::cuda().backend == nullptr) return;
    device::cuda().backend->set_sync_debug_mode(device::SyncDebugMode::kOff);
  }
};

TEST_P(GpuStep, TwentyStepsWithoutAHostSync) {
  const JobConfig job =
      read_job(recipe::parse(kRecipe + ("mode = \"" + GetParam() + "\"\n"), "gpu.toml"));
  const testing::TemporaryFolder folder;
  const RunFolder run{folder.path(), std::nullopt};
  create_run_folder(run, "", nlohmann::json::object());
  const auto group = distributed::Group::alone();
  device::DeviceConfig gpu;
  gpu.select = "cuda:0";
  const c10::Device device = device::choose_device(gpu);
  const auto memory = device::memory_of(device, job.device);
  Trainer trainer(job, build_parts(job, device, group), TrainState{}, run, *memory);
  device::cuda().backend->set_sync_debug_mode(device::SyncDebugMode::kError);
  for (int step = 0; step < 20; ++step) ASSERT_NO_THROW(trainer.train_step()) << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(Precisions, GpuStep, ::testing::Values("bf16", "fp16", "fp32", "tf32"));

}  // namespace
}  // namespace brim::train
