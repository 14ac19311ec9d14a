// The schedules that a recipe can name. Each begins with a linear warm-up where one is asked for,
// except one_cycle, whose rise is one.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "framework/optim/schedule.h"

namespace brim::optim {

/// What the lengths in a recipe's [schedule] count.
enum class Unit { kEpochs, kSteps };
inline constexpr std::array<std::string_view, 2> kUnitWords = {"epochs", "steps"};

/// Linear warm-up: with W steps of it, step s < W has the factor start + (1 - start) s / W.
/// The shapes below begin at step W with factor 1.
struct WarmupConfig : ScheduleConfig {
  Unit unit = Unit::kEpochs;
  double warmup = 0.0;
  double warmup_start = 0.01;

  void fields(recipe::Fields& f) override;
};

struct ConstantConfig final : WarmupConfig {
  std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const override;
};

/// Loshchilov & Hutter, "SGDR", ICLR 2017, without restarts.
struct CosineConfig final : WarmupConfig {
  double final_factor = 0.0;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const override;
};

struct LinearConfig final : WarmupConfig {
  double final_factor = 0.0;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const override;
};

/// Either `every` or `milestones`; both count from the run's start, warm-up included.
struct StepConfig final : WarmupConfig {
  double every = 0.0;
  std::vector<double> milestones;
  double gamma = 0.1;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const override;
};

/// Smith & Topin, "Super-Convergence", 2019; as torch's OneCycleLR with two cosine phases.
struct OneCycleConfig final : ScheduleConfig {
  double rise = 0.3;
  double start_divisor = 25.0;
  double final_divisor = 1e4;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const override;
};

/// What plateau monitors.
enum class MonitoredMetric { kLoss, kAccuracy };
inline constexpr std::array<std::string_view, 2> kMonitoredMetrics = {"loss", "accuracy"};

/// As torch's ReduceLROnPlateau with a relative threshold.
struct PlateauConfig final : WarmupConfig {
  MonitoredMetric metric = MonitoredMetric::kLoss;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  double final_factor = 0.0;

  void fields(recipe::Fields& f) override;
  std::unique_ptr<Schedule> build(double learning_rate, const RunLength& run) const override;
};

}  // namespace brim::optim
