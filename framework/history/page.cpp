#include "framework/experiment/report/page.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "framework/base/units.h"
#include "framework/experiment/report/html.h"
#include "framework/history/table.h"

namespace brim::history {
namespace {

using experiment::escape_html;

/// The classes of the page's style for a run's phases, by Cause.
constexpr std::array<std::string_view, kCauseCount> kColours = {"p3", "p0", "p5", "p7",
                                                                "p8", "p9", "p1"};
constexpr const char* kStyle = R"css(
.bars { display: grid; grid-template-columns: fit-content(220px) minmax(0, 1fr) max-content; gap: 8px 14px; align-items: center; }
.bars .bar { min-width: 0; }
.findings li { overflow-wrap: anywhere; }
.bars span { font-variant-numeric: tabular-nums; font-size: 13px; overflow-wrap: anywhere; }
@media (max-width: 760px) {
  .bars { grid-template-columns: minmax(0, 1fr); gap: 4px; }
  .bars span + .bar + span { color: var(--soft); margin-bottom: 8px; }
}
)css";

std::string legend() {
  std::string html = R"(<div class="legend">)";
  for (size_t i = 0; i < kCauseCount; ++i) {
    html += fmt::format(R"(<span><i class="{}"></i>{}</span>)", kColours[i], kCauseNames[i]);
  }
  return html + "</div>";
}

std::string bar(const Hours& hours) {
  std::string html, words;
  for (size_t i = 0; i < kCauseCount; ++i) {
    const double share = hours.total() > 0 ? hours.by_cause[i] / hours.total() : 0;
    if (share <= 0) continue;
    const std::string text = fmt::format("{} {:.1f} %", kCauseNames[i], 100 * share);
    html += fmt::format(R"(<i class="{}" style="flex:{:.4f}" title="{}"></i>)", kColours[i], share,
                        text);
    words += (words.empty() ? "" : ", ") + text;
  }
  return fmt::format(R"(<div class="bar" role="img" aria-label="{}">{}</div>)", words, html);
}

std::string section(const std::string& heading, std::span<const PastRun> runs, GroupBy by) {
  std::string rows;
  for (const Group& group : group(runs, by)) {
    rows += fmt::format("<span>{}</span>{}<span>{} h, {}</span>", escape_html(group.name),
                        bar(group.hours), format_number(group.hours.total()),
                        format_plural(group.runs, "run"));
  }
  return fmt::format(R"(<section><h2>{}</h2><div class="card">{}<div class="bars">{}</div></div>)"
                     "</section>",
                     heading, legend(), rows);
}

std::string losses(std::span<const PastRun> runs) {
  std::string items;
  for (const Loss& loss : largest_losses(runs)) {
    items += fmt::format("<li>{}</li>", escape_html(describe(loss)));
  }
  if (items.empty()) return R"(<div class="card findings fine"><p>No hour was lost.</p></div>)";
  return fmt::format(
      R"(<div class="card findings"><h2>What would give most back</h2><ul>{}</ul></div>)", items);
}

std::string rows_of(std::span<const PastRun> runs) {
  std::string rows;
  for (const PastRun& run : runs) {
    rows += fmt::format(
        R"(<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>)"
        R"(<td class="n">{}</td><td class="n">{}</td><td class="n">{}</td><td>{}</td></tr>)",
        escape_html(run.name), escape_html(run.started.substr(0, 16)), escape_html(run.user),
        escape_html(run.host), escape_html(run.model),
        run.metric_name.empty() ? "–" : run.metric_name + " " + format_number(run.metric),
        run.samples_per_s ? format_count(std::llround(*run.samples_per_s)) : "–",
        format_number(run.hours.total()), run.energy_kwh ? format_number(*run.energy_kwh) : "–",
        run.findings.empty() ? "–" : escape_html(run.findings.front().sentence()));
  }
  return rows;
}

std::string tile(const std::string& value, const std::string& name) {
  return fmt::format(R"(<div class="tile"><b>{}</b><span>{}</span></div>)", value, name);
}

std::string tiles(std::span<const PastRun> runs) {
  Hours all;
  double energy_kwh = 0;
  for (const PastRun& run : runs) {
    all += run.hours;
    energy_kwh += run.energy_kwh.value_or(0);
  }
  std::string html = tile(format_number(all.total()) + " h", "of devices") +
                     tile(format_count(std::ssize(runs)), "runs");
  if (all.total() > 0) {
    html += tile(fmt::format("{:.0f} %", 100 * all.of(Cause::kCompute) / all.total()), "compute");
  }
  if (energy_kwh > 0) html += tile(format_number(energy_kwh) + " kWh", "of GPUs");
  return fmt::format(R"(<div class="tiles">{}</div>)", html);
}

}  // namespace

std::string make_page(std::span<const PastRun> runs, const std::string& title,
                      const std::string& made_at) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\"><title>{0}</title>\n<style>{1}{2}</style></head>\n<body><main>\n"
      "<header><p class=\"soft\">Where the device hours went</p><h1>{0}</h1></header>\n",
      escape_html(title), experiment::page_style(), kStyle);
  page += tiles(runs) + losses(runs);
  page += section("By week", runs, GroupBy::kWeek) + section("By user", runs, GroupBy::kUser) +
          section("By model", runs, GroupBy::kModel) + section("By host", runs, GroupBy::kHost);
  page += fmt::format(
      R"(<section><h2>Runs</h2><div class="card scroll" tabindex="0"><table><thead><tr><th>run</th>)"
      R"(<th>started</th><th>user</th><th>host</th><th>model</th><th>best</th>)"
      R"(<th class="n">samples/s</th><th class="n">hours</th><th class="n">kWh</th><th>verdict</th>)"
      "</tr></thead><tbody>{}</tbody></table></div></section>"
      "<footer>Made {} by trainer history.</footer>\n</main></body></html>\n",
      rows_of(runs), escape_html(made_at));
  return page;
}

}  // namespace brim::history
