// trainer report RUN…: one HTML file that shows runs over each other.

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/log.h"
#include "framework/base/units.h"
#include "framework/cli/commands.h"
#include "framework/cli/options.h"
#include "framework/doctor/report_run.h"
#include "framework/experiment/profile/profile_file.h"

namespace brim::cli {

namespace {

/// Throws Error(kRecipe) where the report would take the place of a file that is no page.
void refuse_other_file(const std::filesystem::path& output) {
  constexpr std::string_view kPage = "<!doctype html>";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(output, ignored)) return;
  std::string start(kPage.size(), '\0');
  std::ifstream(output, std::ios::binary).read(start.data(), std::ssize(start));
  if (start == kPage) return;
  throw Error(Exit::kRecipe,
              "--output {}: there is a file already that is no report; choose another name",
              output.string());
}

int report(const cxxopts::ParseResult& parsed, std::span<char* const> /*argv*/) {
  if (parsed.count("runs") == 0) {
    throw UsageError("no run given; try: trainer report runs/digits");
  }
  if (parsed.count("output") != 0) refuse_other_file(parsed["output"].as<std::string>());
  std::vector<experiment::ReportRun> runs;
  for (const auto& folder : parsed["runs"].as<std::vector<std::string>>()) {
    experiment::RunData data = experiment::read_run(folder);
    for (const std::string& remark : data.remarks()) log::warning("{}: {}", folder, remark);
    runs.push_back(doctor::report_run(std::move(data), experiment::find_profile(folder)));
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
