#include "framework/train/evaluation.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/amp/autocast.h"
#include "framework/base/error.h"
#include "framework/base/log.h"
#include "framework/base/printable.h"
#include "framework/base/stop.h"
#include "framework/base/timeline.h"
#include "framework/device/memory/advice.h"
#include "framework/device/memory/memory.h"
#include "framework/nn/stage.h"
#include "framework/nn/wrap.h"
#include "framework/optim/ema.h"
#include "framework/train/inputs.h"
#include "framework/train/observe/sample_predictions.h"
#include "framework/train/rank_model.h"

namespace brim::train {
namespace {

constexpr const char* kOutcome = "the outcome of the evaluation";

enum class Next { kPass, kEnd, kSmallerPasses };

/// Ranks that need each other's weights take part in every pass, or all of them in none.
Next agree(const RankModel& model, bool has_batch, bool has_fitted) {
  const at::Tensor flags = at::tensor({int{!has_batch}, int{stop_requested()}, int{!has_fitted}});
  model.group->all_reduce(flags, distributed::Reduce::kMax, "the next pass of the evaluation");
  if (flags[2].item<int>() != 0) return Next::kSmallerPasses;
  return flags[0].item<int>() == 0 && flags[1].item<int>() == 0 ? Next::kPass : Next::kEnd;
}

/// As they are, where they are what a task must give.
at::Tensor checked(at::Tensor sums) {
  if (sums.defined() && sums.dim() == 1 && sums.scalar_type() == at::kDouble) return sums;
  throw Error(Exit::kRecipe,
              "the task's evaluation_sums(): expected double [K] (float64), found {}",
              nn::text_of(sums));
}

/// Over a pass's samples, of which `samples` is told where it is not null.
at::Tensor sums_of(const RankModel& model, const Task& task,
                   const data::DevicePrefetcher::Input& batch, SamplePredictions* samples) {
  const amp::Autocast autocast(model.device.type(), model.precision);
  if (samples == nullptr) {
    return checked(task.evaluation_sums(*model.module, batch.tensors));
  }
  const Evaluated result = task.evaluate(*model.module, batch.tensors);
  if (result.guesses) samples->add(batch.first_position, *result.guesses);
  return checked(result.sums);
}

void add(at::Tensor& sums, const at::Tensor& part) {
  if (sums.defined() && sums.sizes() != part.sizes()) {
    throw Error(Exit::kRecipe,
                "the task's evaluation_sums(): expected as many values of each batch, found {} and "
                "then {}",
                sums.numel(), part.numel());
  }
  sums = sums.defined() ? sums + part : part;
}

at::Tensor sums_in_passes(const RankModel& model, const Task& task, data::DevicePrefetcher& inputs,
                          SamplePredictions* samples) {
  std::optional<amp::WeightCasts> casts;
  if (model.shares_casts(/*recomputes=*/false)) casts.emplace();
  at::Tensor sums;
  while (const auto* batch = stop_requested() ? nullptr : inputs.next()) {
    const at::Tensor part = sums_of(model, task, *batch, samples);
    inputs.prefetch();
    add(sums, part);
  }
  return sums;
}

/// The same of a fully sharded model, where every pass needs all ranks. nullopt where memory runs
/// out on any of them, and `shortage` is what LibTorch said of it here.
std::optional<at::Tensor> sums_in_sharded_passes(const RankModel& model, const Task& task,
                                                 data::DevicePrefetcher& inputs,
                                                 SamplePredictions* samples,
                                                 std::string& shortage) {
  distributed::FullySharded& sharded = *model.sharded;
  at::Tensor sums;
  const data::DevicePrefetcher::Input* batch = nullptr;
  const auto load = [&] { batch = stop_requested() ? nullptr : next_unless_stopped(inputs); };
  bool fits = device::fits(load, &shortage);
  for (;;) {
    const Next next = agree(model, batch != nullptr, fits);
    if (next == Next::kSmallerPasses) return std::nullopt;
    if (next == Next::kEnd) return sums;
    sharded.before_forward(false);
    fits = device::fits([&] { add(sums, sums_of(model, task, *batch, samples)); }, &shortage);
    if (!fits) sharded.give_up_forward();
    fits = fits && device::fits(load, &shortage);
  }
}

/// Messages to the next stage. Each is waited for a pass later.
class StageMessages {
 public:
  explicit StageMessages(distributed::Pipeline& pipeline) : pipeline_(pipeline) {}

  /// Whether there is another pass, which the first stage knows and the others hear of.
  bool another(bool is_known) {
    const at::Tensor flag = at::full({1}, int{is_known}, at::kInt);
    if (!pipeline_.is_first()) pipeline_.receive_activations(flag).wait();
    if (!pipeline_.is_last()) send(flag);
    return flag.item<int>() != 0;
  }
  void send(const at::Tensor& message) {
    under_way_.emplace_back(message, pipeline_.send_activations(message));
    for (; under_way_.size() > kUnderWay; under_way_.pop_front()) under_way_.front().second.wait();
  }
  void finish() {
    for (; !under_way_.empty(); under_way_.pop_front()) under_way_.front().second.wait();
  }

 private:
  static constexpr size_t kUnderWay = 3;  // a pass's flag and activations, and the next one's flag

  distributed::Pipeline& pipeline_;
  std::deque<std::pair<at::Tensor, distributed::Pending>> under_way_;
};

/// What this stage makes of x: on the last one sums, on the others the next one's x.
at::Tensor stage_of(const RankModel& model, const Task& task,
                    const data::DevicePrefetcher::Input& batch, const at::Tensor& x,
                    SamplePredictions* samples) {
  const amp::Autocast autocast(model.device.type(), model.precision);
  auto& stage = dynamic_cast<nn::Stage&>(*model.module);
  stage.whole().begin(batch.tensors.inputs);
  if (!model.pipeline->is_last()) return model.pipeline->outputs().pack(stage.forward(x));
  data::DevicePrefetcher::Input own = batch;
  own.tensors.inputs = x;
  return sums_of(model, task, own, samples);
}

/// Zeros like the last stage's sums on the others, so that all ranks' add up.
at::Tensor sums_of_stages(const RankModel& model, const at::Tensor& sums) {
  distributed::Group& group = *model.group;
  const at::Tensor size = at::full({1}, sums.defined() ? sums.numel() : 0, at::kLong);
  group.broadcast(size, "the number of an evaluation's sums", group.world() - 1);
  if (model.pipeline->is_last()) return sums;
  return at::zeros({size.item<int64_t>()}, at::device(model.device).dtype(at::kDouble));
}

/// In passes of so many samples, each of which goes through all stages. A rank that can't compute
/// one takes part in the rest. nullopt where memory runs out on any of them.
std::optional<at::Tensor> sums_in_stages(const RankModel& model, const Task& task,
                                         data::DevicePrefetcher& inputs,
                                         const std::vector<data::BatchPlan>& passes,
                                         SamplePredictions* samples, std::string& shortage) {
  distributed::Pipeline& pipeline = *model.pipeline;
  int64_t most = 0;
  for (const data::BatchPlan& pass : passes) most = std::max(most, pass.count);
  distributed::MessageRoom room;
  bool fits =
      device::fits([&] { room = pipeline.room_for_messages(most, model.device); }, &shortage);
  if (model.group->any(!fits, kOutcome)) return std::nullopt;
  std::optional<amp::WeightCasts> casts;
  if (model.shares_casts(/*recomputes=*/false)) casts.emplace();
  StageMessages messages(pipeline);
  at::Tensor sums;
  for (const data::BatchPlan& pass : passes) {
    const data::DevicePrefetcher::Input* batch = nullptr;
    fits = fits &&
           device::fits([&] { batch = stop_requested() ? nullptr : next_unless_stopped(inputs); },
                        &shortage);
    if (!messages.another(fits && batch != nullptr)) break;
    at::Tensor x = batch != nullptr ? batch->tensors.inputs : at::Tensor();
    if (!pipeline.is_first()) {
      x = room.before.narrow(0, 0, pass.count);
      pipeline.receive_activations(x).wait();
    }
    at::Tensor made;
    if (batch != nullptr) {
      const auto pass_on = [&] {
        made = stage_of(model, task, *batch, x, samples);
        inputs.prefetch();
      };
      fits = fits && device::fits(pass_on, &shortage);
    }
    if (pipeline.is_last()) {
      if (made.defined()) add(sums, made);
    } else {
      if (!made.defined()) made = room.after.narrow(0, 0, pass.count);
      messages.send(made);
    }
  }
  messages.finish();
  if (model.group->any(!fits, kOutcome)) return std::nullopt;
  return sums_of_stages(model, sums);
}

}  // namespace

Metrics metrics_of(const Task& task, const at::Tensor& sums) {
  Metrics metrics = task.metrics(sums);
  std::set<std::string> names;
  for (const auto& [name, value] : metrics) {
    const bool is_printable = !name.empty() && printable(name) == name;
    if (is_printable && names.insert(name).second) continue;
    throw Error(
        Exit::kRecipe,
        "the task's metrics(): expected a printable name of its own for each, found \"{}\"{}",
        printable(name), is_printable ? " twice" : "");
  }
  const std::string best_by = task.best_by().metric;
  if (names.contains(best_by)) return metrics;
  throw Error(Exit::kRecipe,
              "the task's best_by(): expected one of its metrics(), {}, found \"{}\"",
              names.empty() ? "of which there are none" : fmt::format("{}", fmt::join(names, ", ")),
              printable(best_by));
}

/// nullopt where memory runs out, and `shortage` is what LibTorch said of it.
std::optional<at::Tensor> Evaluator::try_in_passes(int64_t batch, int64_t pass,
                                                   SamplePredictions* samples,
                                                   std::string& shortage) {
  const at::NoGradGuard no_grad;
  if (samples != nullptr) samples->clear();
  std::optional<optim::Ema::Swap> averaged;
  if (ema_ != nullptr) averaged.emplace(*ema_);
  model_.module->eval();
  Timeline timeline;  // of its own: the step's is in its phase `evaluation`
  std::optional<at::Tensor> sums;
  if (model_.pipeline) {
    const auto inputs = inputs_.evaluation(batch, pass, timeline);
    sums = sums_in_stages(model_, task_, *inputs, inputs_.evaluation_passes(batch, pass), samples,
                          shortage);
  } else if (model_.sharded && !model_.sharded->is_apart()) {
    const auto inputs = inputs_.evaluation(batch, pass, timeline);
    const distributed::FullySharded::Evaluation evaluation(*model_.sharded);
    sums = sums_in_sharded_passes(model_, task_, *inputs, samples, shortage);
  } else {
    std::optional<distributed::FullySharded::Evaluation> evaluation;
    device::fits(
        [&] {
          const auto inputs = inputs_.evaluation(batch, pass, timeline);
          if (model_.sharded) evaluation.emplace(*model_.sharded);
          try {
            sums = sums_in_passes(model_, task_, *inputs, samples);
          } catch (const Error& error) {
            if (error.status() != Exit::kStopped) throw;
            sums = at::Tensor();
          }
        },
        &shortage);
  }
  model_.module->train();
  return sums;
}

at::Tensor Evaluator::sums(int64_t micro, SamplePredictions* samples) {
  const int64_t batch = inputs_.evaluation_batch(micro);
  const int64_t world = model_.data_world();
  // the largest of all ranks
  const int64_t share = std::max<int64_t>(1, (inputs_.evaluation_samples() + world - 1) / world);
  if (!passes_ || passes_->wanted() != batch) passes_.emplace(batch, /*unit=*/1);
  evaluations_ += 1;
  passes_->grow(evaluations_);
  for (;;) {
    const int64_t pass = std::min(passes_->size(), share);
    std::string shortage = device::kShortElsewhere;
    const auto sums = try_in_passes(batch, pass, samples, shortage);
    if (sums) return *sums;
    if (!passes_->halve(evaluations_, pass)) {
      throw Error(Exit::kResource,
                  "out of memory in the evaluation with batch size 1: {}. Choose a smaller "
                  "model or smaller samples, or {}",
                  shortage, device::more_memory());
    }
    log::warning("out of memory in the evaluation with batch size {}; retrying with {} ({})", pass,
                 passes_->size(), shortage);
  }
}

std::optional<at::Tensor> Evaluator::try_sums(int64_t micro) {
  std::string shortage;
  const int64_t batch = inputs_.evaluation_batch(micro);
  return try_in_passes(batch, batch, /*samples=*/nullptr, shortage);
}

}  // namespace brim::train
