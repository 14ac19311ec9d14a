#include "framework/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "framework/optim/warmup.h"

namespace brim::optim {
namespace {

class Constant final : public WarmedUp {
 public:
  using WarmedUp::WarmedUp;

 protected:
  double factor(int64_t) const override { return 1.0; }
};

class Cosine final : public WarmedUp {
 public:
  Cosine(const CosineConfig& config, double learning_rate, const RunLength& run)
      : WarmedUp(config, learning_rate, run), final_factor_(config.final_factor) {}

 protected:
  double factor(int64_t t) const override {
    if (shape_steps() == 0) return 1.0;
    const double share = static_cast<double>(t) / static_cast<double>(shape_steps());
    return final_factor_ + (1.0 - final_factor_) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  }

 private:
  double final_factor_;
};

class Linear final : public WarmedUp {
 public:
  Linear(const LinearConfig& config, double learning_rate, const RunLength& run)
      : WarmedUp(config, learning_rate, run), final_factor_(config.final_factor) {}

 protected:
  double factor(int64_t t) const override {
    if (shape_steps() == 0) return 1.0;
    const double share = static_cast<double>(t) / static_cast<double>(shape_steps());
    return 1.0 + (final_factor_ - 1.0) * share;
  }

 private:
  double final_factor_;
};

class Step final : public WarmedUp {
 public:
  Step(const StepConfig& config, double learning_rate, const RunLength& run)
      : WarmedUp(config, learning_rate, run), gamma_(config.gamma) {
    if (config.every > 0) every_ = std::max<int64_t>(1, to_steps(config.every, config.unit, run));
    for (const double milestone : config.milestones) {
      milestones_.push_back(to_steps(milestone, config.unit, run));
    }
  }

 protected:
  double factor(int64_t t) const override {
    const int64_t step = t + warmup_steps();
    const int64_t falls =
        every_ > 0 ? step / every_
                   : std::ranges::count_if(milestones_, [&](int64_t at) { return at <= step; });
    return std::pow(gamma_, static_cast<double>(falls));
  }

 private:
  double gamma_;
  int64_t every_ = 0;
  std::vector<int64_t> milestones_;
};

class OneCycle final : public Schedule {
 public:
  OneCycle(const OneCycleConfig& config, double learning_rate, const RunLength& run)
      : highest_(learning_rate),
        first_(learning_rate / config.start_divisor),
        last_(first_ / config.final_divisor),
        end_(static_cast<double>(run.steps - 1)),
        top_(std::max(0.0, config.rise * static_cast<double>(run.steps) - 1.0)) {}

  double learning_rate(int64_t step) const override {
    const double t = std::min(static_cast<double>(step), end_);
    if (t < top_) return between(first_, highest_, t / top_);
    return end_ > top_ ? between(highest_, last_, (t - top_) / (end_ - top_)) : highest_;
  }

 private:
  static double between(double from, double to, double share) {
    return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  }

  double highest_, first_, last_;  // rates
  double end_, top_;               // steps; the top may lie between two
};

}  // namespace

void CosineConfig::fields(recipe::Fields& f) {
  WarmupConfig::fields(f);
  f.value("final_factor", final_factor, "factor on the learning rate at the end",
          recipe::between(0, 1));
}

void LinearConfig::fields(recipe::Fields& f) {
  WarmupConfig::fields(f);
  f.value("final_factor", final_factor, "factor on the learning rate at the end",
          recipe::between(0, 1));
}

void StepConfig::fields(recipe::Fields& f) {
  WarmupConfig::fields(f);
  f.value("every", every, "`unit`s between two falls, from the run's start; 0 where milestones say",
          recipe::at_least(0));
  f.value("milestones", milestones, "`unit`s after which the rate falls, from the run's start",
          recipe::above(0));
  f.value("gamma", gamma, "factor on the learning rate at each fall",
          {.low = 0, .high = 1, .low_open = true});
}

void OneCycleConfig::fields(recipe::Fields& f) {
  f.value("rise", rise, "share of the run in which the rate goes up",
          {.low = 0, .high = 1, .low_open = true, .high_open = true});
  f.value("start_divisor", start_divisor, "the first step has learning_rate over this",
          recipe::at_least(1));
  f.value("final_divisor", final_divisor, "the last step has the first step's rate over this",
          recipe::at_least(1));
}

std::unique_ptr<Schedule> ConstantConfig::build(double learning_rate, const RunLength& run) const {
  return std::make_unique<Constant>(*this, learning_rate, run);
}

std::unique_ptr<Schedule> CosineConfig::build(double learning_rate, const RunLength& run) const {
  return std::make_unique<Cosine>(*this, learning_rate, run);
}

std::unique_ptr<Schedule> LinearConfig::build(double learning_rate, const RunLength& run) const {
  return std::make_unique<Linear>(*this, learning_rate, run);
}

std::unique_ptr<Schedule> StepConfig::build(double learning_rate, const RunLength& run) const {
  if ((every > 0) != milestones.empty()) {
    throw Error(Exit::kRecipe,
                "schedule 'step' needs one of schedule.every and "
                "schedule.milestones; found {}",
                every > 0 ? "both" : "neither");
  }
  return std::make_unique<Step>(*this, learning_rate, run);
}

std::unique_ptr<Schedule> OneCycleConfig::build(double learning_rate, const RunLength& run) const {
  return std::make_unique<OneCycle>(*this, learning_rate, run);
}

}  // namespace brim::optim
