#include "framework/experiment/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/base/units.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/page.h"
#include "framework/experiment/report/profile_page.h"
#include "framework/experiment/report/report_parts.h"

namespace brim::experiment {
namespace {

std::string section(const char* title, const std::string& content) {
  return content.empty() ? "" : fmt::format("<section><h2>{}</h2>{}</section>", title, content);
}

std::string charts(const std::string& content) {
  return content.empty() ? "" : R"(<div class="grid2">)" + content + "</div>";
}

std::string title_of(const Shown& shown) {
  std::string title;
  for (const std::string& label : shown.labels) {
    if (title.size() > 80) return title + " …";
    title += (title.empty() ? "" : " · ") + label;
  }
  return title;
}

std::vector<std::string> remarks_of(const RunData& run) {
  std::vector<std::string> remarks = run.remarks();
  if (run.losses_not_finite > 0) {
    remarks.push_back(fmt::format("{} of {} {} not finite", format_count(run.losses_not_finite),
                                  format_plural(run.losses, "recorded loss", "recorded losses"),
                                  run.losses_not_finite == 1 ? "is" : "are"));
  }
  return remarks;
}

std::string remarks(const Shown& shown) {
  std::string items;
  for (size_t i = 0; i < shown.runs.size(); ++i) {
    for (const std::string& remark : remarks_of(shown.runs[i].data)) {
      items += fmt::format(R"(<p class="soft">{}: {}.</p>)", escape_html(shown.labels[i]),
                           escape_html(remark));
    }
  }
  return items;
}

/// Of one run: the pages of several would be told apart by nothing.
std::string profile_of(const Shown& shown) {
  const auto& profile = shown.runs[0].profile;
  return shown.is_one() && profile ? profile_section(*profile) : "";
}

}  // namespace

std::vector<std::string> labels_of(const std::vector<ReportRun>& runs) {
  std::vector<std::string> labels;
  for (const ReportRun& run : runs) labels.push_back(run.data.name);
  const auto is_twice = [](const std::vector<std::string>& names, size_t i) {
    return std::ranges::count(names, names[i]) > 1;
  };
  const std::vector<std::string> names = labels;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::error_code error;
    const auto whole = std::filesystem::weakly_canonical(runs[i].data.folder, error);
    const std::string above = whole.parent_path().filename().string();
    if (is_twice(names, i) && !error && !above.empty()) labels[i] = above + "/" + names[i];
  }
  const std::vector<std::string> longer = labels;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto before =
        std::count(longer.begin(), longer.begin() + static_cast<int64_t>(i), longer[i]);
    if (before > 0) labels[i] += fmt::format(" ({})", before + 1);
  }
  return labels;
}

Page report_page(const std::vector<ReportRun>& runs, const std::string& made_at) {
  const Shown shown{runs, labels_of(runs)};
  const std::string title = title_of(shown);
  const std::string missing = not_recorded(shown);
  const std::string footer = fmt::format(
      "<footer>{}{}Bands span the lowest and the highest value of the steps that a point stands "
      "for; "
      "each line of metrics.jsonl is the mean of telemetry.every_steps steps.</footer>\n",
      missing.empty() ? ""
                      : fmt::format("Not recorded by {}: {}. ",
                                    shown.is_one() ? "this run" : "these runs", missing),
      made_at.empty() ? "" : fmt::format("Made {} by trainer report. ", escape_html(made_at)));
  return {.title = title,
          .blocks = {{"head", fmt::format("<header><p class=\"soft\">Brim "
                                          "report</p><h1>{}</h1>{}{}{}</header>\n",
                                          escape_html(title), remarks(shown), findings(shown),
                                          summary(shown))},
                     {"choice", axis_choice(shown)},
                     {"learning", section("Learning", charts(learning_charts(shown)))},
                     {"speed", section("Speed and memory", charts(speed_charts(shown)))},
                     {"time", section("Where the time went", time_section(shown))},
                     {"classes", section("Classes", classes_section(shown))},
                     {"samples", section("Sample predictions", samples_section(shown))},
                     {"texts", section("Written after evaluations", texts_section(shown))},
                     {"profile", section("Profile of single steps", profile_of(shown))},
                     {"recipe", section("Recipe", recipe_section(shown))},
                     {"environment", section("Environment", environment_section(shown))},
                     {"log", section("Log", log_section(shown))},
                     {"foot", footer}}};
}

std::string make_report(const std::vector<ReportRun>& runs, const std::string& made_at) {
  return frozen_page(report_page(runs, made_at));
}

}  // namespace brim::experiment
