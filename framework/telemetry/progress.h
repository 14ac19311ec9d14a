// How a run shows itself to a person: a live line on a terminal, plain lines now and then
// elsewhere. Both go through base/log.h. Metrics for machines are MetricsFile's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/units.h"

namespace brim::telemetry {

struct ProgressState {
  int64_t epoch = 0;   // from 1; 0: not shown
  int64_t epochs = 0;  // 0: the run counts steps only
  int64_t step = 0;    // finished optimizer steps, over the whole run
  int64_t steps = 0;   // of the whole run; 0: unknown, so no bar and no time left
  double step_s = 0.0;
  double samples_per_s = 0.0;
  std::optional<double> loss = {};  // none: not known yet
  double learning_rate = 0.0;
  std::string_view samples = "images";  // what samples_per_s counts
};

/// One line of at most `width` columns, ASCII. Where not all fits, the least wanted goes first:
/// learning rate, step time, epoch, bar, speed, time left, loss; the step stays.
std::string format_progress(const ProgressState& state, int width);

/// The same metrics without bar and without limit, for lines that are kept.
std::string format_progress_line(const ProgressState& state);

/// Columns of the terminal behind stderr; 80 where it doesn't say.
int terminal_width();

/// Not thread-safe: it belongs to the thread that drives the step.
class Progress {
 public:
  Progress();
  /// Removes the live line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// To be called after every step with that step's own metrics; time and speed are shown averaged
  /// over the last ten or so. On a terminal the line changes at most ten times a second; elsewhere
  /// the first and last step and one about every five seconds are written.
  void update(const ProgressState& state, double now_s = brim::now_s());

  /// A line to be kept, such as an evaluation's result.
  void note(const std::string& line);

 private:
  bool live_;
  int64_t updates_ = 0;
  double step_s_ = 0.0;            // averaged
  double samples_per_step_ = 0.0;  // averaged
  double shown_s_ = 0.0;
};

}  // namespace brim::telemetry
