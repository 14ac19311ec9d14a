// The charts of a report.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "framework/base/timeline.h"
#include "framework/experiment/report/chart.h"
#include "framework/experiment/report/clock.h"
#include "framework/experiment/report/html.h"
#include "framework/experiment/report/report_parts.h"

namespace brim::experiment {
namespace {

constexpr size_t kMaxPoints = 360;  // of a line
constexpr size_t kFewestPoints = 100;
constexpr size_t kPointsOfAllRuns = 2400;  // keeps the page of many runs small
constexpr double kGib = 1.0 / (1 << 30);
constexpr double kShownShare = 0.001;  // a phase below it, over the whole run, is left out

size_t points_for(const Shown& shown) {
  return std::clamp(kPointsOfAllRuns / shown.runs.size(), kFewestPoints, kMaxPoints);
}

/// Times of the points, by the run's clock where it knows any.
void set_times(std::vector<Point>& points, const Clock& clock) {
  if (!clock.is_known()) return;
  for (Point& point : points) point.time_s = clock.at(point.x);
}

/// What a chart needs to be read by time, once it has its lines: marks where a run's processes took
/// over from each other.
void add_restarts(Chart& chart, const Shown& shown) {
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (const Line& line : chart.lines) {
    if (line.points.empty()) continue;
    first = std::min(first, line.points.front().x);
    last = std::max(last, line.points.back().x);
  }
  chart.has_times = true;
  for (size_t run = 0; run < shown.runs.size(); ++run) {
    const RunData& data = shown.runs[run].data;
    chart.has_times &= !data.age_s.empty();
    for (const Restart& restart : data.restarts) {
      const auto step = static_cast<double>(restart.step);
      if (step < first || step > last) continue;
      chart.marks.push_back({shown.is_one() ? "" : Shown::colour(run), step, restart.age_s});
    }
  }
}

struct Wanted {
  std::string metric;
  std::string word;  // what the line is beside others of the same run; "" for the run itself
  bool is_evaluation = false;
};

/// Adds a line of every run that has the metric.
void add_lines(Chart& chart, const Shown& shown, const Wanted& wanted, double scale = 1.0) {
  for (size_t run = 0; run < shown.runs.size(); ++run) {
    const Series* series = shown.runs[run].data.metric(wanted.metric);
    if (series == nullptr) continue;
    std::string label = shown.labels[run];
    if (shown.is_one() && !wanted.word.empty()) {
      label = wanted.word;
    } else if (!wanted.word.empty()) {
      label += ", " + wanted.word;
    }
    // Beside other lines of the one run each has a colour of its own.
    const size_t colour = shown.is_one() ? chart.lines.size() : run;
    std::vector<Point> points = points_of(*series, points_for(shown), scale);
    set_times(points, Clock(shown.runs[run].data));
    chart.lines.push_back(
        {.label = label,
         .colour = Shown::colour(colour),
         .points = std::move(points),
         .has_dots = wanted.is_evaluation,
         .is_dashed = !shown.is_one() && (wanted.word == "evaluation" || Shown::is_dashed(run))});
  }
}

/// A chart over steps.
std::string draw_steps(Chart chart, const Shown& shown) {
  add_restarts(chart, shown);
  return draw(chart);
}

std::string chart_of(const Shown& shown, const Wanted& wanted, Chart chart, double scale = 1.0) {
  add_lines(chart, shown, wanted, scale);
  return draw_steps(std::move(chart), shown);
}

/// The metrics of any run whose names begin so, without that beginning.
std::vector<std::string> metrics_with(const Shown& shown, std::string_view prefix) {
  std::vector<std::string> names;
  for (const ReportRun& run : shown.runs) {
    for (auto it = run.data.metrics.lower_bound(prefix);
         it != run.data.metrics.end() && it->first.starts_with(prefix); ++it) {
      if (!it->second.empty()) names.push_back(it->first.substr(prefix.size()));
    }
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool changes(const Shown& shown, std::string_view metric) {
  return std::ranges::any_of(shown.runs, [&](const ReportRun& run) {
    const Series* series = run.data.metric(metric);
    return series != nullptr && series->low() < series->high();
  });
}

/// The longest of all runs' step times, to choose the unit by.
double usual_step_s(const Shown& shown) {
  double most = 0;
  for (const ReportRun& run : shown.runs) {
    const Series* series = run.data.metric("step_s");
    if (series != nullptr) most = std::max(most, series->quantiles().at(0.5));
  }
  return most;
}

std::string evaluation_charts(const Shown& shown) {
  Chart accuracy{.title = "Accuracy of evaluations", .unit = "%"};
  std::string others;
  for (const std::string& name : metrics_with(shown, "eval_")) {
    if (name == "loss" || name == "s") continue;
    const Wanted wanted{"eval_" + name, name, true};
    if (!name.starts_with("top")) {
      others += chart_of(shown, {"eval_" + name, "", true}, {.title = "Evaluation: " + name});
    } else if (shown.is_one() || name == "top1") {
      add_lines(accuracy, shown, wanted);
    }
  }
  return draw_steps(std::move(accuracy), shown) + others;
}

std::string memory_chart(const Shown& shown) {
  Chart chart{.title = "Memory", .unit = "GiB", .from_zero = true};
  for (const std::string& name : metrics_with(shown, "memory/")) {
    if (!name.ends_with("_bytes")) continue;
    if (!shown.is_one() && name != "peak_bytes") continue;
    add_lines(chart, shown, {"memory/" + name, name.substr(0, name.size() - 6)}, kGib);
  }
  return draw_steps(std::move(chart), shown);
}

std::string utilisation_chart(const Shown& shown) {
  Chart chart{.title = "Utilisation", .unit = "%", .from_zero = true};
  for (const std::string& name : metrics_with(shown, "device/")) {
    if (!name.ends_with("_percent")) continue;
    add_lines(chart, shown, {"device/" + name, name.substr(0, name.size() - 8)});
  }
  return draw_steps(std::move(chart), shown);
}

/// run.json's "tuning": {"probes": [{"micro": …, "samples_per_s": …, "peak_bytes": …}, …]}; the
/// last two only where the size fitted.
std::vector<Point> tuning_curve(const RunData& run, const char* metric, double scale) {
  std::vector<Point> points;
  const auto tuning = run.record.find("tuning");
  if (tuning == run.record.end() || !tuning->is_object()) return points;
  const auto curve = tuning->find("probes");
  if (curve == tuning->end() || !curve->is_array()) return points;
  for (const auto& probe : *curve) {
    if (!probe.is_object() || points.size() >= kMaxPoints) continue;
    const auto micro = probe.find("micro");
    const auto value = probe.find(metric);
    if (micro == probe.end() || value == probe.end() || !micro->is_number() ||
        !value->is_number()) {
      continue;
    }
    const double y = value->get<double>() * scale;
    points.push_back({micro->get<double>(), y, y, y});
  }
  std::ranges::sort(points, {}, &Point::x);
  return points;
}

std::string tuning_charts(const Shown& shown) {
  Chart speed{.title = "Batch tuning: speed",
              .unit = "samples/s",
              .x_unit = "micro-batch",
              .from_zero = true};
  Chart memory{.title = "Batch tuning: peak memory",
               .unit = "GiB",
               .x_unit = "micro-batch",
               .from_zero = true};
  for (size_t run = 0; run < shown.runs.size(); ++run) {
    const RunData& data = shown.runs[run].data;
    const auto line = [&](std::vector<Point> points) {
      return Line{shown.labels[run], Shown::colour(run), std::move(points), true,
                  Shown::is_dashed(run)};
    };
    speed.lines.push_back(line(tuning_curve(data, "samples_per_s", 1.0)));
    memory.lines.push_back(line(tuning_curve(data, "peak_bytes", kGib)));
  }
  return draw(speed) + draw(memory);
}

// --- where the time went ------------------------------------------------------------------------

struct PhaseTimes {
  std::string name;
  std::string colour;
  const Series* series;
  double share;  // of the whole run
};

std::vector<PhaseTimes> phases_of(const RunData& run) {
  std::vector<PhaseTimes> phases;
  double all = 0;
  for (int phase = 0; phase < kPhaseCount; ++phase) {
    const std::string name(phase_name(static_cast<Phase>(phase)));
    const Series* series = run.metric("phases_s/" + name);
    if (series == nullptr) continue;
    phases.push_back({name, fmt::format("p{}", phase), series, series->mean()});
    all += series->mean();
  }
  for (PhaseTimes& phase : phases) phase.share /= std::max(all, 1e-12);
  std::erase_if(phases, [](const PhaseTimes& phase) { return phase.share < kShownShare; });
  return phases;
}

std::string readable(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::string shares_chart(const std::vector<PhaseTimes>& phases, const ReportRun& run,
                         const std::string& label, size_t most) {
  Chart chart{.title = label, .unit = "% of the step", .is_stacked = true};
  for (const PhaseTimes& phase : phases) {
    chart.lines.push_back({.label = readable(phase.name),
                           .colour = phase.colour,
                           .points = points_of(*phase.series, most)});
  }
  // A phase that was not recorded from the start would lie beside the others.
  const size_t count = chart.lines.empty() ? 0 : chart.lines[0].points.size();
  for (const Line& line : chart.lines) {
    if (line.points.size() != count) return "";
  }
  for (size_t i = 0; i < count; ++i) {
    double all = 0;
    for (const Line& line : chart.lines) all += std::max(0.0, line.points[i].y);
    double below = 0;
    for (Line& line : chart.lines) {
      Point& point = line.points[i];
      const double share = all > 0 ? 100 * std::max(0.0, point.y) / all : 0;
      point.low = below;
      point.high = below += share;
      point.y = point.high;
    }
  }
  for (Line& line : chart.lines) set_times(line.points, Clock(run.data));
  chart.has_times = !run.data.age_s.empty();
  return draw(chart);
}

std::string times_table(const std::vector<PhaseTimes>& phases, const std::string& label) {
  std::string bar;
  std::string rows;
  for (const PhaseTimes& phase : phases) {
    bar += fmt::format(R"(<i class="{}" style="flex:{:.4f}" title="{} {:.1f} %"></i>)",
                       phase.colour, phase.share, readable(phase.name), 100 * phase.share);
    const Quantiles& times = phase.series->quantiles();
    rows += fmt::format(
        R"(<tr><td><i class="{}"></i> {}</td><td class="n">{:.1f} %</td><td class="n">{}</td>)"
        R"(<td class="n">{}</td><td class="n">{}</td></tr>)",
        phase.colour, readable(phase.name), 100 * phase.share,
        readable_number(phase.series->mean() * 1e3), readable_number(times.at(0.5) * 1e3),
        readable_number(times.at(0.95) * 1e3));
  }
  return fmt::format(
      R"(<div class="card"><h3>{}</h3><p></p><div class="bar">{}</div><p></p><div class="scroll" tabindex="0">)"
      R"(<table><thead><tr><th>phase</th><th class="n">share</th><th class="n">mean, ms a step</th>)"
      R"(<th class="n">p50</th><th class="n">p95</th></tr></thead><tbody>{}</tbody></table></div></div>)",
      escape_html(label), bar, rows);
}

}  // namespace

std::string axis_choice(const Shown& shown) {
  const bool have_ages =
      std::ranges::all_of(shown.runs, [](const ReportRun& run) { return !run.data.age_s.empty(); });
  const bool is_resumed = std::ranges::any_of(
      shown.runs, [](const ReportRun& run) { return !run.data.restarts.empty(); });
  std::string html;
  if (have_ages) {
    html = R"(<fieldset id="axis" hidden><legend>Charts by</legend>)"
           R"(<label><input type="radio" name="axis" value="x" checked> step</label>)"
           R"(<label><input type="radio" name="axis" value="time"> wall time</label></fieldset>)";
  }
  const bool have_lines =
      std::ranges::any_of(shown.runs, [](const ReportRun& run) { return run.data.lines > 1; });
  if (have_lines) {
    html += R"(<p id="smoothing" hidden><label>Smoothing <input type="range" min="0" max="0.99" )"
            R"(step="0.01" value="0"><output>0</output></label></p>)";
  }
  if (is_resumed) {
    html += R"(<p class="note">Vertical lines: the run was resumed. Wall time is the time during )"
            R"(which its processes ran, without the time between them.</p>)";
  }
  return html;
}

std::string learning_charts(const Shown& shown) {
  Chart loss{.title = "Loss", .unit = "", .may_be_log = true};
  add_lines(loss, shown, {"loss", "training"});
  add_lines(loss, shown, {"eval_loss", "evaluation", true});
  const Wanted unsmoothed = {"unsmoothed_loss", "training, without label smoothing"};
  if (shown.is_one()) add_lines(loss, shown, unsmoothed);
  std::string html = draw_steps(std::move(loss), shown);
  if (!shown.is_one()) {  // there it would be one line too many for each run
    html += chart_of(shown, {unsmoothed.metric, ""},
                     {.title = "Training loss without label smoothing", .may_be_log = true});
  }
  html += evaluation_charts(shown);
  html += chart_of(shown, {"learning_rate", ""}, {.title = "Learning rate", .from_zero = true});
  html += chart_of(shown, {"gradient_norm", ""},
                   {.title = "Norm of the gradients", .may_be_log = true});
  if (changes(shown, "scale")) {
    html += chart_of(shown, {"scale", ""}, {.title = "Scale of the loss", .may_be_log = true});
  }
  return html;
}

std::string speed_charts(const Shown& shown) {
  std::string html = chart_of(shown, {"samples_per_s", ""},
                              {.title = "Throughput", .unit = "samples/s", .from_zero = true});
  const bool is_short = usual_step_s(shown) < 1.0;
  html += chart_of(
      shown, {"step_s", ""},
      {.title = "Step time", .unit = is_short ? "ms" : "s", .from_zero = true, .cuts_peaks = true},
      is_short ? 1e3 : 1.0);
  return html + memory_chart(shown) + utilisation_chart(shown) + tuning_charts(shown);
}

std::string time_section(const Shown& shown) {
  std::string html;
  for (size_t run = 0; run < shown.runs.size(); ++run) {
    const auto phases = phases_of(shown.runs[run].data);
    if (phases.empty()) continue;
    html += R"(<div class="times">)" +
            shares_chart(phases, shown.runs[run], shown.labels[run], points_for(shown) / 2) +
            times_table(phases, shown.labels[run]) + "</div>";
  }
  return html;
}

std::string not_recorded(const Shown& shown) {
  const auto has = [&](std::string_view prefix, auto is_shown) {
    return std::ranges::any_of(metrics_with(shown, prefix), is_shown);
  };
  std::string words;
  const auto say = [&](bool is_recorded, const char* what) {
    if (!is_recorded) words += (words.empty() ? "" : ", ") + std::string(what);
  };
  say(has("eval_", [](const std::string& name) { return name != "loss" && name != "s"; }),
      "evaluations");
  say(has("memory/", [](const std::string& name) { return name.ends_with("_bytes"); }), "memory");
  say(has("device/", [](const std::string& name) { return name.ends_with("_percent"); }),
      "utilisation");
  say(!tuning_charts(shown).empty(), "batch tuning");
  return words;
}

}  // namespace brim::experiment
