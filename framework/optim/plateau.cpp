#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/optim/warmup.h"

namespace brim::optim {
namespace {

class Plateau final : public WarmedUp {
 public:
  Plateau(const PlateauConfig& config, double learning_rate, const RunLength& run)
      : WarmedUp(config, learning_rate, run), config_(config) {}

  void observe(const Evaluation& evaluation) override {
    const double value =
        config_.metric == MonitoredMetric::kLoss ? evaluation.loss : evaluation.accuracy;
    if (is_better(value)) {
      best_ = value;
      bad_ = 0;
      return;
    }
    if (++bad_ <= config_.patience) return;
    factor_ = std::max(factor_ * config_.factor, config_.final_factor);
    bad_ = 0;
  }

  nlohmann::json state() const override {
    nlohmann::json state = {{"factor", factor_}, {"bad", bad_}, {"best", nullptr}};
    if (best_) state["best"] = *best_;
    return state;
  }

  void load(const nlohmann::json& state) override {
    try {
      const auto& best = state.at("best");
      const auto factor = state.at("factor").get<double>();
      const auto bad = state.at("bad").get<int64_t>();
      best_ = best.is_null() ? std::nullopt : std::optional(best.get<double>());
      factor_ = factor;
      bad_ = bad;
    } catch (const nlohmann::json::exception&) {
      throw Error(Exit::kCheckpoint,
                  "the checkpoint holds the state of another schedule: expected factor, bad and "
                  "best of 'plateau', found {}",
                  state.dump());
    }
  }

 protected:
  double factor(int64_t) const override { return factor_; }

 private:
  /// A NaN is never better.
  bool is_better(double value) const {
    if (!best_) return std::isfinite(value);
    return config_.metric == MonitoredMetric::kLoss ? value < *best_ * (1.0 - config_.threshold)
                                                    : value > *best_ * (1.0 + config_.threshold);
  }

  PlateauConfig config_;
  double factor_ = 1.0;
  int64_t bad_ = 0;  // evaluations since the last better one or the last fall
  std::optional<double> best_;
};

}  // namespace

void PlateauConfig::fields(recipe::Fields& f) {
  WarmupConfig::fields(f);
  f.renamed("watch", "metric");
  f.choice("metric", metric, kMonitoredMetrics, "the evaluation's metric that must improve");
  f.value("factor", factor, "factor on the learning rate at each fall",
          {.low = 0, .high = 1, .low_open = true, .high_open = true});
  f.value("patience", patience, "evaluations without improvement that are borne",
          recipe::at_least(0));
  f.value("threshold", threshold, "smallest improvement that counts, as a share of the best",
          recipe::between_open_high(0, 1));
  f.value("final_factor", final_factor, "the rate never falls under learning_rate times this",
          recipe::between(0, 1));
}

std::unique_ptr<Schedule> PlateauConfig::build(double learning_rate, const RunLength& run) const {
  return std::make_unique<Plateau>(*this, learning_rate, run);
}

}  // namespace brim::optim
