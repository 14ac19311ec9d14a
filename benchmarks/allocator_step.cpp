// Seconds of a ResNet-50 training step with Brim's allocator behind the tensors, or with the
// process's malloc, for instance a preloaded tcmalloc; nothing else differs.
//   allocator_step brim|malloc [STEPS [BATCH]]
// fp32, 224 px, channels_last, SGD with momentum; two steps of warm-up. Prints the median of STEPS
// (6) at BATCH (16).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "framework/base/units.h"
#include "framework/device/memory/allocator.h"
#include "framework/nn/model.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_groups.h"
#include "framework/recipe/registry.h"
#include "models/register.h"

namespace brim {
namespace {

constexpr int kWarmup = 2;

double median_step_s(int64_t steps, int64_t batch) {
  models::register_all();
  optim::register_optimizers();
  recipe::Slot<nn::ModelConfig> config("resnet50");
  config.component();
  const auto model = config->build({.channels = 3, .height = 224, .width = 224, .classes = 1000});
  nn::use_channels_last(*model);
  model->train();
  recipe::Slot<optim::OptimizerConfig> sgd("sgd");
  sgd.component();
  const auto optimizer = sgd->build(optim::decay_groups(model->named_parameters().pairs(), 1e-4));
  const at::Tensor images =
      at::randn({batch, 3, 224, 224}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor labels = at::randint(1000, {batch}, at::kLong);
  std::vector<double> step_s;
  for (int64_t step = 0; step < kWarmup + steps; ++step) {
    const double start_s = now_s();
    optimizer->zero_grad();
    at::cross_entropy_loss(model->forward(images), labels).backward();
    optimizer->step(0.1, {});
    if (step >= kWarmup) step_s.push_back(now_s() - start_s);
  }
  std::ranges::nth_element(step_s, step_s.begin() + static_cast<int64_t>(step_s.size()) / 2);
  return step_s[step_s.size() / 2];
}

}  // namespace
}  // namespace brim

int main(int argc, char** argv) {
  const std::string_view allocator = argc > 1 ? argv[1] : "";
  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 6;
  const int64_t batch = argc > 3 ? std::atoll(argv[3]) : 16;
  if ((allocator != "brim" && allocator != "malloc") || steps < 1 || batch < 1) {
    fmt::print(stderr, "usage: allocator_step brim|malloc [STEPS [BATCH]]\n");
    return 2;
  }
  if (allocator == "brim") brim::device::install_cpu_allocator();
  fmt::print("{:.6f}\n", brim::median_step_s(steps, batch));
  return 0;
}
