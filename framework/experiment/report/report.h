// One HTML file that shows one run or several over each other: curves, where the time went, what
// they ran on. It needs no network and no other file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/experiment/report/page.h"
#include "framework/experiment/run_data.h"
#include "framework/telemetry/step_profile.h"

namespace brim::experiment {

struct ReportRun {
  RunData data;
  /// What a diagnosis found, a sentence each; nullopt: none was made.
  std::optional<std::vector<std::string>> findings = {};
  std::optional<telemetry::StepProfile> profile = {};
  std::string log = {};  // the end of what it printed; "" where that is not shown
};

/// At least one run. `made_at` is shown at the page's end; "" for one that is served live.
Page report_page(const std::vector<ReportRun>& runs, const std::string& made_at);
/// The same as one file.
std::string make_report(const std::vector<ReportRun>& runs, const std::string& made_at);

/// What runs are called where several are shown: their folders' names, with the folder above or a
/// number where two are the same.
std::vector<std::string> labels_of(const std::vector<ReportRun>& runs);

}  // namespace brim::experiment
