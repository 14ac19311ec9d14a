#include "framework/experiment/report/roofline_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "framework/base/units.h"
#include "framework/experiment/profile/roofline.h"
#include "framework/experiment/report/axis.h"
#include "framework/experiment/report/html.h"

namespace brim::experiment {
namespace {

using telemetry::OperatorCalls;
using telemetry::StepProfile;

constexpr int kPlotWidth = 1000, kPlotHeight = 400;  // of the SVG's own coordinates
constexpr std::array<std::string_view, 4> kRoofColours = {"r2", "r6", "r1", "r7"};
constexpr size_t kMaxDots = 400;
constexpr double kLargestDot = 26, kSmallestDot = 4;  // pixels
constexpr double kFewestDecades = 2;

/// Calls of an operator in a module and phase.
struct Dot {
  std::string name;
  Phase phase = Phase::kForward;
  Work work = {};

  double intensity() const { return work.flops / work.bytes; }
  double speed() const { return work.flops / work.self_s; }
};

/// Of those that multiply, the longest.
std::vector<Dot> dots_of(const StepProfile& profile) {
  std::map<std::tuple<std::string, std::string, Phase>, Dot> all;
  for (const OperatorCalls& calls : profile.operators) {
    if (!(calls.flops > 0 && calls.bytes > 0 && calls.self_s > 0)) continue;
    Dot& dot = all[{calls.name, calls.module, calls.phase}];
    dot.name =
        fmt::format("{} in {}", calls.name, calls.module.empty() ? "no module" : calls.module);
    dot.phase = calls.phase;
    dot.work += work_of(calls, profile.peaks);
  }
  std::vector<Dot> dots;
  for (auto& [key, dot] : all) dots.push_back(std::move(dot));
  std::ranges::stable_sort(dots, std::greater<>{}, [](const Dot& dot) { return dot.work.self_s; });
  if (dots.size() > kMaxDots) dots.resize(kMaxDots);
  return dots;
}

struct DotRange {
  double low, high;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Some room at the ends, and never less than two decades.
  Axis axis() const {
    const double middle = std::sqrt(low * high);
    const double reach = std::pow(10, kFewestDecades / 2);
    return log_axis(std::min(low / 1.5, middle / reach), std::max(high * 1.5, middle * reach));
  }
};

struct PlotAxes {
  Axis x, y;
  std::string point(double at_x, double at_y) const {
    return fmt::format("{:.1f} {:.1f}", x.place(at_x) * kPlotWidth,
                       (1 - y.place(at_y)) * kPlotHeight);
  }
};

/// Up along the memory's limit, then level at the peak.
std::string roof(const PlotAxes& axes, double bytes_per_s, double flops_per_s) {
  const double ridge = flops_per_s / bytes_per_s;
  const double from = std::max(axes.x.low, axes.y.low / bytes_per_s);
  std::string path = "M" + axes.point(from, from * bytes_per_s);
  if (ridge > from && ridge < axes.x.high) path += "L" + axes.point(ridge, flops_per_s);
  return path + "L" + axes.point(axes.x.high, std::min(flops_per_s, axes.x.high * bytes_per_s));
}

std::string dot_path(const PlotAxes& axes, const Dot& dot, double wall_s) {
  const double share = wall_s > 0 ? dot.work.self_s / wall_s : 0;
  return fmt::format(
      R"(<path class="dot {}" style="stroke-width:{:.1f}px" d="M{}h0"><title>{}, {}: {:.1f} % of )"
      R"(the step, {} GFLOP/s, {} FLOP a byte, {:.0f} % of its roofline</title></path>)",
      dot.phase == Phase::kBackward ? "p5" : "p3",
      std::clamp(kLargestDot * std::sqrt(10 * share), kSmallestDot, kLargestDot),
      axes.point(dot.intensity(), dot.speed()), escape_html(dot.name), phase_name(dot.phase),
      100 * share, format_number(1e-9 * dot.speed()), format_number(dot.intensity()),
      100 * dot.work.efficiency());
}

std::string plot_grid(const PlotAxes& axes) {
  std::string path;
  for (const Tick& tick : axes.y.ticks) {
    path += fmt::format("M0 {:.1f}h{}", (1 - axes.y.place(tick.value)) * kPlotHeight, kPlotWidth);
  }
  for (const Tick& tick : axes.x.ticks) {
    path += fmt::format("M{:.1f} 0v{}", axes.x.place(tick.value) * kPlotWidth, kPlotHeight);
  }
  return path;
}

std::string plot_ticks(const Axis& axis, bool is_vertical, double scale) {
  std::string html;
  for (const Tick& tick : axis.ticks) {
    const double place = 100 * axis.place(tick.value);
    html += fmt::format(R"(<span style="{}:{:.2f}%">{}</span>)", is_vertical ? "top" : "left",
                        is_vertical ? 100 - place : place, readable_number(tick.value * scale));
  }
  return html;
}

}  // namespace

std::string draw_roofline(const StepProfile& profile) {
  const std::vector<Dot> dots = dots_of(profile);
  const telemetry::Peaks& peaks = profile.peaks;
  if (dots.empty() || peaks.flops_per_s.empty() || !(peaks.bytes_per_s > 0)) return "";
  DotRange x{dots[0].intensity(), dots[0].intensity()}, y{dots[0].speed(), dots[0].speed()};
  for (const Dot& dot : dots) {
    x.include(dot.intensity());
    y.include(dot.speed());
  }
  std::string legend =
      R"(<span><i class="p3"></i>forward</span><span><i class="p5"></i>backward</span>)";
  for (const auto& [dtype, flops] : peaks.flops_per_s) {
    if (!(flops > 0)) return "";
    x.include(flops / peaks.bytes_per_s);
    y.include(flops);
  }
  const PlotAxes axes{x.axis(), y.axis()};
  std::string lines;
  size_t colour = 0;
  for (const auto& [dtype, flops] : peaks.flops_per_s) {
    const std::string_view name = kRoofColours[colour++ % kRoofColours.size()];
    lines += fmt::format(R"(<path class="line {}" d="{}"/>)", name,
                         roof(axes, peaks.bytes_per_s, flops));
    legend += fmt::format(R"(<span><i class="{}"></i>{} {} GFLOP/s, {} GB/s</span>)", name,
                          escape_html(dtype), format_number(1e-9 * flops),
                          format_number(1e-9 * peaks.bytes_per_s));
  }
  std::string marks;
  for (const Dot& dot : dots) marks += dot_path(axes, dot, profile.wall_s);
  return fmt::format(
      R"(<section class="card"><div class="caption"><h2>Roofline</h2><span class="unit">GFLOP/s</span>)"
      R"(</div><div class="legend">{}</div><div class="plot"><div class="ys">{}</div>)"
      R"(<div class="area tall"><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" )"
      R"(aria-label="roofline"><path class="grid" d="{}"/>{}{}</svg></div><div class="xs">{}</div>)"
      R"(</div><div class="x-unit">FLOP a byte</div><p class="note">A dot is an operator in a )"
      R"(module, its size the time it takes. Below a line there is room; what multiplies nothing )"
      R"(has no place here.</p></section>)",
      legend, plot_ticks(axes.y, /*is_vertical=*/true, 1e-9), kPlotWidth, kPlotHeight,
      plot_grid(axes), lines, marks, plot_ticks(axes.x, /*is_vertical=*/false, 1));
}

}  // namespace brim::experiment
