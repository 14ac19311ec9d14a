// Code of your own around a whole run: here, early stopping.

#include <brim/base/log.h>
#include <brim/base/stop.h>
#include <brim/recipe/library.h>
#include <brim/train/callbacks.h>

#include <limits>
#include <memory>

namespace {

/// Ends a run whose evaluations have not improved `patience` times in a row.
class EarlyStopping final : public brim::train::Callbacks {
 public:
  explicit EarlyStopping(int patience) : patience_(patience) {}

  void on_evaluation(int64_t step, const brim::train::Metrics& metrics) override {
    const double loss = metrics.front().second;
    worse_ = loss < best_ ? 0 : worse_ + 1;
    best_ = std::min(best_, loss);
    if (worse_ < patience_) return;
    brim::log::info("step {}: no better evaluation in the last {}", step, worse_);
    brim::request_stop();  // after this step, saved
  }
  void on_checkpoint(int64_t step, const std::filesystem::path& folder) override {
    brim::log::info("checkpoint of step {} is in {}", step, folder.string());
  }

 private:
  int patience_;
  int worse_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace

BRIM_LIBRARY {
  brim::train::callbacks().push_back(std::make_shared<EarlyStopping>(/*patience=*/3));
}
