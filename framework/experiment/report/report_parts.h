// The sections of a report, each as HTML; "" where the runs have nothing for it.
#pragma once

#include <string>
#include <vector>

#include "framework/experiment/report/report.h"

namespace brim::experiment {

/// The runs of a report with the names they are shown by.
struct Shown {
  const std::vector<ReportRun>& runs;
  std::vector<std::string> labels;

  bool is_one() const { return runs.size() == 1; }
  /// The class of the page's style for a run.
  static std::string colour(size_t run) { return "r" + std::to_string(run % 8); }
  /// There are eight colours.
  static bool is_dashed(size_t run) { return run / 8 % 2 == 1; }
};

/// Key results: tiles for one run, a table for several.
std::string summary(const Shown& shown);
std::string findings(const Shown& shown);
/// The choice between charts by step and by wall time, where all runs have recorded their age,
/// smoothing, and what the marks of resumed runs mean.
std::string axis_choice(const Shown& shown);
/// Loss, accuracy, learning rate and what else concerns learning.
std::string learning_charts(const Shown& shown);
/// Throughput, step time, memory, utilisation, batch tuning.
std::string speed_charts(const Shown& shown);
/// For each run the shares of its phases over the steps, and a table of them.
std::string time_section(const Shown& shown);
/// For each run that evaluated images a confusion matrix, or its hardest classes.
std::string classes_section(const Shown& shown);
/// Of one run: images of its last evaluation with label, prediction and confidence.
std::string samples_section(const Shown& shown);
/// Of one run: the newest texts that its model wrote after evaluations.
std::string texts_section(const Shown& shown);
/// Of one run: the end of its log.
std::string log_section(const Shown& shown);
std::string recipe_section(const Shown& shown);
std::string environment_section(const Shown& shown);
/// "memory, utilisation": what no run has recorded.
std::string not_recorded(const Shown& shown);

}  // namespace brim::experiment
