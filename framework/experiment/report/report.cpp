#include "framework/experiment/report/report.h"

#include <fmt/format.h>

#include <algorithm>

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

std::string remarks(const Shown& shown) {
  std::string items;
  for (size_t i = 0; i < shown.runs.size(); ++i) {
    for (const std::string& remark : shown.runs[i].data.remarks()) {
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

std::string make_report(const std::vector<ReportRun>& runs, const std::string& made_at) {
  const Shown shown{runs, labels_of(runs)};
  const std::string title = escape_html(title_of(shown));
  const std::string missing = not_recorded(shown);
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">"
      "<title>{}</title>\n<style>{}</style></head>\n<body><main>\n<header><p class=\"soft\">Brim "
      "report</p><h1>{}</h1>{}{}{}</header>\n",
      title, page_style(), title, remarks(shown), findings(shown), summary(shown));
  page += axis_choice(shown);
  page += section("Learning", charts(learning_charts(shown)));
  page += section("Speed and memory", charts(speed_charts(shown)));
  page += section("Where the time went", time_section(shown));
  page += section("Classes", classes_section(shown));
  page += section("Sample predictions", samples_section(shown));
  page += section("Profile of single steps", profile_of(shown));
  page += section("Recipe", recipe_section(shown));
  page += section("Environment", environment_section(shown));
  page += fmt::format(
      "<footer>{}Made {} by trainer report. Bands span the lowest and the highest value of the "
      "steps "
      "that a point stands for; each line of metrics.jsonl is the mean of "
      "telemetry.every_steps steps.</footer>\n</main><div id=\"tip\"></div>\n<script>{}</script>"
      "</body></html>\n",
      missing.empty() ? ""
                      : fmt::format("Not recorded by {}: {}. ",
                                    shown.is_one() ? "this run" : "these runs", missing),
      escape_html(made_at), page_script());
  return page;
}

}  // namespace brim::experiment
