#include "framework/sweep/page.h"

#include <fmt/format.h>

#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/printable.h"
#include "framework/base/units.h"
#include "framework/experiment/report/chart.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/page.h"
#include "framework/experiment/run_data.h"
#include "framework/sweep/importance.h"
#include "framework/sweep/parallel_coordinates.h"
#include "framework/sweep/table.h"
#include "framework/telemetry/run_record.h"

namespace brim::sweep {
namespace {

using experiment::escape_html;

constexpr size_t kMaxPoints = 60;   // of a curve
constexpr size_t kMaxCurves = 200;  // of the best trials
constexpr size_t kMaxLabels = 16;   // what a legend holds
constexpr const char* kStyle = R"css(
svg.trials text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg.trials text.name { fill: var(--text); font-size: 12px; }
svg.trials .axis { stroke: var(--edge); stroke-width: 1.5; }
svg.trials polyline:hover { stroke-width: 4; stroke-opacity: 1; }
td.share { width: 60%; }
td.share div { height: 10px; border-radius: 3px; background: var(--r0); }
.many .legend { display: none; }
)css";

std::string curves(const Store& store, std::span<const Trial> trials,
                   const std::vector<size_t>& order, const FindSeries& find) {
  experiment::Chart chart{.title = store.plan().metric};
  for (const size_t place : order) {
    const Trial& trial = trials[place];
    if (trial.last() == nullptr || chart.lines.size() == kMaxCurves) break;
    const auto series = find(store.run_folder(trial), "eval_" + store.plan().metric);
    if (!series) continue;
    chart.lines.push_back({.label = fmt::format("trial {}", trial.id),
                           .colour = fmt::format("r{}", chart.lines.size() % 8),
                           .points = experiment::points_of(*series, kMaxPoints),
                           .has_dots = true});
  }
  const bool is_many = chart.lines.size() > kMaxLabels;
  return fmt::format(R"(<div class="{}">{}</div>)", is_many ? "many" : "few",
                     experiment::draw(chart));
}

std::string table_of(const Plan& plan, std::span<const Trial> trials,
                     const std::vector<size_t>& order) {
  const std::vector<std::string> keys = keys_of(trials);
  std::string html = fmt::format(
      R"(<div class="card scroll" tabindex="0"><table><thead><tr><th>trial</th><th>state</th>)"
      R"(<th>{}</th><th>step</th>)",
      escape_html(plan.metric));
  for (const std::string& key : keys) html += fmt::format("<th>{}</th>", escape_html(key));
  html += "<th>reason</th></tr></thead><tbody>";
  for (const size_t place : order) {
    const Trial& trial = trials[place];
    const RungResult* last = trial.last();
    html += fmt::format(R"(<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>)", trial.id,
                        word_of(trial.state), last == nullptr ? "–" : format_number(last->metric),
                        last == nullptr ? "–" : format_count(last->step));
    for (const std::string& key : keys) {
      html += fmt::format("<td>{}</td>", escape_html(value_at(trial, key)));
    }
    html += fmt::format("<td>{}</td></tr>", escape_html(trial.reason));
  }
  return html + "</tbody></table></div>";
}

/// Empty where there are too few results.
std::string importance_section(const Plan& plan, std::span<const Trial> trials) {
  const std::vector<Importance> keys = importance_of_keys(plan, trials);
  if (keys.empty()) return "";
  std::string html = fmt::format(
      R"(<section><h2>What the results depend on</h2><div class="card"><p>Of the )"
      R"(differences in {} between trials, each key explains by itself:</p><table><tbody>)",
      escape_html(plan.metric));
  for (const auto& [key, share] : keys) {
    html += fmt::format(R"(<tr><td>{}</td><td>{:.0f} %</td>)"
                        R"(<td class="share"><div style="width:{:.1f}%"></div></td></tr>)",
                        escape_html(key), 100 * share, 100 * share);
  }
  return html + "</tbody></table></div></section>";
}

std::string best_recipe(const Store& store, const Trial& best) {
  const auto path = store.run_folder(best) / "recipe.toml";
  std::string text = best.recipe;
  try {
    text = read_file(path, Exit::kData, telemetry::kLongestRunFile);
  } catch (const Error&) {  // the run's folder was removed: what it was begun with
  }
  std::string settings;
  for (const std::string& setting : best.settings) settings += setting + "\n";
  return fmt::format(
      R"(<section><h2>The best recipe</h2><div class="card"><p>Trial {}:</p><pre>{}</pre>)"
      "<details><summary>{}</summary><pre>{}</pre></details></div></section>",
      best.id, escape_html(without_secrets(settings)), escape_html(path.string()),
      escape_html(without_secrets(text)));
}

}  // namespace

experiment::Page sweep_page(const Store& store, std::span<const Trial> trials,
                            const std::string& made_at, const FindSeries& find) {
  const Plan& plan = store.plan();
  const std::vector<size_t> order = ranking(plan, trials);
  experiment::Page page{.title = "Sweep of " + plan.name, .style = kStyle};
  page.blocks.push_back(
      {"head",
       fmt::format("<header><p class=\"soft\">Brim sweep</p><h1>{}</h1><p>{}</p></header>\n",
                   escape_html(page.title), escape_html(summary(plan, trials)))});
  const bool has_results = !order.empty() && trials[order[0]].last() != nullptr;
  page.blocks.push_back(
      {"settings",
       !has_results
           ? ""
           : fmt::format(
                 R"(<section><h2>Settings and results</h2><div class="card scroll" tabindex="0">{}</div></section>)",
                 parallel_coordinates(plan, trials))});
  page.blocks.push_back({"curves", !has_results
                                       ? ""
                                       : "<section><h2>Over the steps</h2>" +
                                             curves(store, trials, order, find) + "</section>"});
  page.blocks.push_back({"importance", !has_results ? "" : importance_section(plan, trials)});
  page.blocks.push_back({"best", !has_results ? "" : best_recipe(store, trials[order[0]])});
  page.blocks.push_back(
      {"trials", "<section><h2>Trials</h2>" + table_of(plan, trials, order) + "</section>"});
  page.blocks.push_back({"foot", made_at.empty()
                                     ? ""
                                     : fmt::format("<footer>Made {} by trainer sweep.</footer>\n",
                                                   escape_html(made_at))});
  return page;
}

std::string make_page(const Store& store, std::span<const Trial> trials,
                      const std::string& made_at) {
  const auto find = [](const std::filesystem::path& folder,
                       const std::string& metric) -> std::optional<experiment::Series> {
    try {
      const experiment::RunData run = experiment::read_run(folder);
      const experiment::Series* series = run.metric(metric);
      return series == nullptr ? std::nullopt : std::optional(*series);
    } catch (const Error&) {  // its folder was removed since
      return std::nullopt;
    }
  };
  return experiment::frozen_page(sweep_page(store, trials, made_at, find));
}

}  // namespace brim::sweep
