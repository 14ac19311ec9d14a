// What the peer tests ask of this module. stdin is a JSON array of jobs, stdout the array of their
// results; one process does them all. A job has a "task" and what it needs:
//   step   recipe, start [16], gradients [steps][16] already multiplied by the scale, and
//          found_inf [steps], where 1 puts an infinity and a NaN into the gradients.
//          Result: [steps][16]. The first 12 numbers are a weight [4, 3], the rest a bias.
//   clip   max_norm, gradients [16]. Result: the norm, then the clipped gradients.
//   rates  recipe, steps, steps_per_epoch, values [steps]. Result: the rate of each step; the
//          step's value is observed after it, as loss and as accuracy.
// A recipe is TOML: [optimizer] or [schedule], with learning_rate and weight_decay at the top.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "framework/optim/clip.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_groups.h"
#include "framework/optim/schedule.h"
#include "framework/recipe/document.h"
#include "framework/recipe/read.h"

namespace brim::optim {
namespace {

using nlohmann::json;

template <class Base>
struct Section {
  recipe::Slot<Base> slot;
  void fields(recipe::Fields& f) { f.component("name", slot, "the part"); }
};

struct Job : recipe::Config {
  double learning_rate = 0.1;
  double weight_decay = 0.0;
  double grad_scale = 0.0;  // 0: none
  Section<OptimizerConfig> optimizer{recipe::Slot<OptimizerConfig>("sgd")};
  Section<ScheduleConfig> schedule{recipe::Slot<ScheduleConfig>("constant")};

  void fields(recipe::Fields& f) override {
    f.value("learning_rate", learning_rate, "");
    f.value("weight_decay", weight_decay, "");
    f.value("grad_scale", grad_scale, "");
    f.section("optimizer", optimizer, "");
    f.section("schedule", schedule, "");
  }
};

Job read_job(const json& request) {
  Job job;
  recipe::read(recipe::parse(request.at("recipe").get<std::string>(), "job"), job);
  return job;
}

using Pair = std::pair<at::Tensor, at::Tensor>;

Pair to_tensors(const json& numbers) {
  const auto values = numbers.get<std::vector<double>>();
  if (values.size() != 16) throw Error(Exit::kData, "expected 16 numbers, found {}", values.size());
  const at::Tensor all = at::tensor(values, at::kDouble);
  return {all.narrow(0, 0, 12).view({4, 3}).clone(), all.narrow(0, 12, 4).clone()};
}

std::vector<double> to_numbers(const Pair& tensors) {
  std::vector<double> numbers;
  for (const auto& tensor : {tensors.first, tensors.second}) {
    const at::Tensor flat = tensor.detach().flatten();
    numbers.insert(numbers.end(), flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }
  return numbers;
}

json step(const json& request) {
  const Job job = read_job(request);
  auto [weight, bias] = to_tensors(request.at("start"));
  weight.requires_grad_();
  bias.requires_grad_();
  const auto optimizer = job.optimizer.slot->build(
      decay_groups({{"weight", weight}, {"bias", bias}}, job.weight_decay));
  json result = json::array();
  const auto& gradients = request.at("gradients");
  for (size_t i = 0; i < gradients.size(); ++i) {
    std::tie(weight.mutable_grad(), bias.mutable_grad()) = to_tensors(gradients.at(i));
    StepScale scale;
    if (job.grad_scale > 0) {
      const double found_inf = request.at("found_inf").at(i);
      if (found_inf > 0) {
        weight.mutable_grad()[1][0] = INFINITY;
        bias.mutable_grad()[1] = NAN;
      }
      scale = {at::full({}, job.grad_scale, at::kFloat), at::full({}, found_inf, at::kFloat)};
    }
    optimizer->step(job.learning_rate, scale);
    result.push_back(to_numbers({weight, bias}));
  }
  return result;
}

json clip(const json& request) {
  const auto gradients = to_tensors(request.at("gradients"));
  const auto norm = clip_grad_norm({gradients.first, gradients.second}, request.at("max_norm"));
  auto numbers = to_numbers(gradients);
  numbers.insert(numbers.begin(), norm.item<double>());
  return numbers;
}

json rates(const json& request) {
  const Job job = read_job(request);
  const auto schedule = job.schedule.slot->build(
      job.learning_rate,
      {.steps = request.at("steps"), .steps_per_epoch = request.at("steps_per_epoch")});
  json result = json::array();
  for (const double value : request.at("values")) {
    result.push_back(schedule->learning_rate(static_cast<int64_t>(result.size())));
    schedule->observe({.loss = value, .accuracy = value});
  }
  return result;
}

int run(int, char**) {
  register_optimizers();
  register_schedules();
  json results = json::array();
  for (const auto& request : json::parse(std::cin)) {
    const std::string task = request.at("task");
    results.push_back(task == "step"   ? step(request)
                      : task == "clip" ? clip(request)
                                       : rates(request));
  }
  std::cout << results << "\n";
  return 0;
}

}  // namespace
}  // namespace brim::optim

int main(int argc, char** argv) { return brim::run_program(brim::optim::run, argc, argv); }
