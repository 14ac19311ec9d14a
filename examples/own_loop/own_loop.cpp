// Brim's training step around a module of your own, in a program of your own: no recipe file, no
// run's folder. Prints the loss before and after and writes the weights.

#include <brim/checkpoint/tensors.h>
#include <brim/cli/program.h>
#include <brim/device/choice.h>
#include <brim/nn/wrap.h>
#include <brim/train/components.h>
#include <brim/train/step/training_step.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

namespace {

using namespace brim;

struct Net : torch::nn::Module {
  Net(int64_t inputs, int64_t classes) : first(inputs, 64), last(64, classes) {
    register_module("first", first);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& images) { return last(first(images.flatten(1)).relu()); }
  torch::nn::Linear first, last;
};

struct NetConfig : nn::ModelConfig {
  void fields(recipe::Fields& /*no keys*/) override {}
  std::shared_ptr<nn::Model> build(const nn::ModelShape& shape) const override {
    const int64_t inputs = shape.channels * shape.height * shape.width;
    return nn::wrap(std::make_shared<Net>(inputs, shape.classes), shape);
  }
};

constexpr const char* kJob = R"(
  model.name = "net"
  data = {kind = "synthetic", height = 16, width = 16}
  optimizer = {name = "sgd", learning_rate = 0.1}
)";

int run(int argc, char** argv) {
  cli::register_components();
  recipe::registry<nn::ModelConfig>().add<NetConfig>("net", "two linear layers");
  train::JobConfig job = train::read_job(recipe::parse(kJob, "own_loop's job"));

  const c10::Device device = device::choose_device(job.device);
  const auto memory = device::memory_of(device, job.device);
  train::TrainingComponents parts =
      train::build_components(job, device, distributed::Group::alone());
  train::TrainingStep step(job, parts, /*finished_steps=*/0, {}, *memory);
  const auto loss = [&] { return parts.task->metrics(step.evaluation_sums().cpu())[0].second; };
  const double before = loss();
  for (int i = 0; i < 20; ++i) step.take();
  std::printf("loss %.4f before, %.4f after 20 steps\n", before, loss());
  if (argc > 1) checkpoint::save_tensors(argv[1], nn::named_tensors(*parts.model.module), {});
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return brim::run_program(run, argc, argv); }
