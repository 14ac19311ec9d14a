// trainer report RUN…: one HTML file that shows runs over each other.

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/doctor/diagnosis.h"
#include "framework/experiment/report/report.h"

namespace brim::cli {

int report_command(int argc, char** argv) {
  cxxopts::Options options("trainer report",
                           "One HTML file with the curves, times, recipe and environment of a run, "
                           "or of several over each other.");
  options.positional_help("RUN…");
  options.add_options()("output", "the file; default: report.html in the first run's folder",
                        cxxopts::value<std::string>(), "FILE")(
      "runs", "the runs' folders", cxxopts::value<std::vector<std::string>>(), "RUN")(
      "h,help", "show this help");
  options.parse_positional({"runs"});
  const auto parsed = parse_options(options, argc, argv);
  if (parsed.count("help") != 0) {
    fmt::print("{}\n", options.help());
    return 0;
  }
  if (parsed.count("runs") == 0) {
    throw Error(Exit::kRecipe, "no run given; try: trainer report runs/digits");
  }
  std::vector<experiment::ReportRun> runs;
  for (const auto& folder : parsed["runs"].as<std::vector<std::string>>()) {
    runs.push_back({.data = experiment::read_run(folder)});
    const doctor::Diagnosis diagnosis = doctor::diagnose(doctor::facts_of(runs.back().data));
    if (!diagnosis.is_too_short) {
      runs.back().findings = diagnosis.verdict(diagnosis.findings.size());
    }
  }
  const std::filesystem::path output =
      parsed.count("output") != 0 ? std::filesystem::path(parsed["output"].as<std::string>())
                                  : runs[0].data.folder / "report.html";
  const std::string page = experiment::make_report(runs, timestamp());
  write_file(output, page);
  log::info("report of {} in {} ({})",
            runs.size() == 1 ? "one run" : fmt::format("{} runs", runs.size()), output.string(),
            format_bytes(static_cast<int64_t>(page.size())));
  return 0;
}

}  // namespace brim::cli
