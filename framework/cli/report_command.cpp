// trainer report RUN…: one HTML file that shows runs over each other.

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/stop.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/doctor/report_run.h"
#include "framework/experiment/profile/profile_file.h"

namespace brim::cli {

namespace {

int report(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  if (parsed.count("runs") == 0) {
    throw UsageError("no run given; try: trainer report runs/digits");
  }
  if (parsed.count("output") != 0) require_page(parsed["output"].as<std::string>());
  std::optional<NothingToSave> while_reading(std::in_place);
  std::vector<experiment::ReportRun> runs;
  for (const auto& folder : parsed["runs"].as<std::vector<std::string>>()) {
    if (stop_requested()) throw Error(Exit::kStopped, std::string("stopped while runs were read"));
    experiment::RunData data = experiment::read_run(folder);
    for (const std::string& remark : data.remarks()) log::warning("{}: {}", folder, remark);
    runs.push_back(doctor::report_run(std::move(data), experiment::find_profile(folder)));
  }
  const std::filesystem::path output =
      parsed.count("output") != 0 ? std::filesystem::path(parsed["output"].as<std::string>())
                                  : runs[0].data.folder / "report.html";
  const std::string page = experiment::make_report(runs, timestamp());
  if (stop_requested())
    throw Error(Exit::kStopped, std::string("stopped before a report was there"));
  while_reading.reset();
  write_file(output, page);
  log::info("report of {} in {} ({})",
            runs.size() == 1 ? "one run" : fmt::format("{} runs", runs.size()), output.string(),
            format_bytes(static_cast<int64_t>(page.size())));
  return 0;
}

}  // namespace

Command report_command() {
  return {.name = "report",
          .arguments = "RUN...",
          .summary = "one HTML file of a run, or of several",
          .details =
              "Writes one HTML file with the curves, times, recipe and environment of a "
              "run, or of several over each other. It needs no network to be read.",
          .add_options =
              [](cxxopts::Options& options) {
                options.add_options()("runs", "the runs' folders",
                                      cxxopts::value<std::vector<std::string>>(), "RUN...")(
                    "output", "the file; without it, report.html in the first run's folder",
                    cxxopts::value<std::string>(), "FILE");
              },
          .positional = {"runs"},
          .examples = {{"trainer report runs/digits", "writes runs/digits/report.html"},
                       {"trainer report runs/digits runs/digits-2 --output both.html",
                        "two runs over each other"}},
          .run = report};
}

}  // namespace brim::cli
