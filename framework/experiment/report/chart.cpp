#include "framework/experiment/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/experiment/report/axis.h"
#include "framework/experiment/report/html.h"

namespace brim::experiment {
namespace {

constexpr int kWidth = 1000;  // of the SVG's own coordinates
constexpr int kHeight = 300;
constexpr double kLogFrom = 100;       // highest over lowest
constexpr double kPeak = 2.5;          // times the 98th percentile: cut off
constexpr double kWorthCutting = 1.5;  // times what is left of the axis: less is shown whole

using Buffer = std::string;

/// One decimal, none where it is 0.
void put_number(Buffer& out, double value) {
  const auto tenths = static_cast<int64_t>(std::llround(value * 10));
  std::array<char, 24> text{};
  const auto [end, code] = std::to_chars(text.data(), text.data() + text.size(), tenths / 10);
  out.append(text.data(), end);
  if (tenths % 10 != 0) out += {'.', static_cast<char>('0' + tenths % 10)};
}

struct Axes {
  Axis x;
  Axis y;
  Axis time = {};  // in the place of x where the reader wants it

  void put(Buffer& out, char command, double at_x, double at_y) const {
    out += command;
    put_number(out, x.place(at_x) * kWidth);
    out += ' ';
    put_number(out, (1 - y.place(at_y)) * kHeight);
  }
};

/// The area between two lines over the same x.
std::string area(const Axes& axes, const std::vector<Point>& points) {
  Buffer path;
  for (size_t i = 0; i < points.size(); ++i) {
    axes.put(path, i == 0 ? 'M' : 'L', points[i].x, points[i].high);
  }
  for (size_t i = points.size(); i-- > 0;) axes.put(path, 'L', points[i].x, points[i].low);
  return path + 'Z';
}

std::string curve(const Axes& axes, const std::vector<Point>& points) {
  Buffer path;
  for (size_t i = 0; i < points.size(); ++i) {
    axes.put(path, i == 0 ? 'M' : 'L', points[i].x, points[i].y);
  }
  if (points.size() == 1) path += "h0";  // seen as a dot
  return path;
}

/// Dots are strokes without length, which stay round however the SVG is stretched.
std::string dots(const Axes& axes, const std::vector<Point>& points) {
  Buffer path;
  for (const Point& point : points) {
    axes.put(path, 'M', point.x, point.y);
    path += "h0";
  }
  return path;
}

/// Where both axes have the marks, for the page's script.
std::string marks_of(const Chart& chart, const Axes& axes) {
  std::string html;
  for (const Mark& mark : chart.marks) {
    const double x = axes.x.place(mark.x) * kWidth, time = axes.time.place(mark.time_s) * kWidth;
    html += fmt::format(
        R"(<path class="mark {}" data-x="{:.1f}" data-time="{:.1f}" d="M{:.1f} 0v{}"/>)",
        mark.colour, x, time, x, kHeight);
  }
  return html;
}

bool has_band(const Line& line) {
  return std::ranges::any_of(line.points,
                             [](const Point& point) { return point.low < point.high; });
}

std::string svg_of(const Chart& chart, const Axes& axes) {
  std::string svg = fmt::format(
      R"(<svg viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true"><path class="grid" d=")",
      kWidth, kHeight);
  for (const Tick& tick : axes.y.ticks) {
    svg += 'M';
    put_number(svg, 0);
    svg += ' ';
    put_number(svg, (1 - axes.y.place(tick.value)) * kHeight);
    svg += fmt::format("h{}", kWidth);
  }
  svg += "\"/>" + marks_of(chart, axes);
  size_t number = 0;  // as values_of() counts them
  for (const Line& line : chart.lines) {
    if (line.points.empty()) continue;
    const std::string data = fmt::format(R"(data-line="{}")", number++);
    if (has_band(line)) {
      svg += fmt::format(R"(<path class="{} {}" {} d="{}"/>)", chart.is_stacked ? "area" : "band",
                         line.colour, data, area(axes, line.points));
    }
    if (chart.is_stacked) continue;
    svg += fmt::format(R"(<path class="line {}{}" {} d="{}"/>)", line.colour,
                       line.is_dashed ? " dashed" : "", data, curve(axes, line.points));
    if (line.has_dots) {
      svg += fmt::format(R"(<path class="dots {}" {} d="{}"/>)", line.colour, data,
                         dots(axes, line.points));
    }
  }
  return svg + "</svg>";
}

std::string ticks_of(const Axis& axis, const char* side) {
  std::string html;
  const bool is_vertical = side[0] == 't';
  for (const Tick& tick : axis.ticks) {
    const double place = axis.place(tick.value);
    html += fmt::format(R"(<span style="{}:{:.2f}%">{}</span>)", side,
                        100 * (is_vertical ? 1 - place : place), tick.text);
  }
  return html;
}

/// What the page's script shows under the pointer, and what it draws from when the reader changes
/// an axis: unit and ends of the axes, whether heights are logarithmic (g) or stacked (s); of each
/// line its name and colour, whether each point stands for itself (e), its points and bands.
std::string values_of(const Chart& chart, const Axes& axes) {
  std::string json = fmt::format(
      R"({{"u":{},"xu":{},"x0":{},"x1":{},"y0":{},"y1":{},"g":{},"s":{},)",
      script_string(chart.unit), script_string(chart.x_unit), short_number(axes.x.low, 12),
      short_number(axes.x.high, 12), short_number(axes.y.low, 12), short_number(axes.y.high, 12),
      axes.y.is_log ? 1 : 0, chart.is_stacked ? 1 : 0);
  if (chart.has_times) json += fmt::format(R"("t1":{},)", short_number(axes.time.high, 6));
  json += "\"l\":[";
  bool is_first = true;
  for (const Line& line : chart.lines) {
    if (line.points.empty()) continue;
    json +=
        fmt::format(R"({}{{"n":{},"c":{},"e":{},"x":[)", is_first ? "" : ",",
                    script_string(line.label), script_string(line.colour), line.has_dots ? 1 : 0);
    is_first = false;
    const auto list = [&](auto value) {
      for (size_t i = 0; i < line.points.size(); ++i) {
        if (i > 0) json += ',';
        json += value(line.points[i]);
      }
    };
    list([](const Point& point) { return short_number(std::round(point.x * 10) / 10, 12); });
    json += "],\"y\":[";
    list([&](const Point& point) {
      return short_number(chart.is_stacked ? point.high - point.low : point.y, 4);
    });
    json += ']';
    if (has_band(line)) {
      json += ",\"lo\":[";
      list([](const Point& point) { return short_number(point.low, 4); });
      json += "],\"hi\":[";
      list([](const Point& point) { return short_number(point.high, 4); });
      json += ']';
    }
    if (chart.has_times) {
      json += ",\"t\":[";
      list([](const Point& point) { return short_number(point.time_s, 6); });
      json += ']';
    }
    json += '}';
  }
  return json + "]}";
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double a, double b) {
    low = std::min(low, a);
    high = std::max(high, b);
  }
};

/// Where the axis ends if rare peaks are cut off.
double without_peaks(const Chart& chart, double highest) {
  std::vector<double> values;
  for (const Line& line : chart.lines) {
    for (const Point& point : line.points) values.push_back(point.y);
  }
  const auto at = static_cast<size_t>(0.98 * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  const double most = values[at] * kPeak;
  return most > 0 && highest > kWorthCutting * most ? most : highest;
}

std::string legend_of(const Chart& chart) {
  std::string html = R"(<div class="legend">)";
  for (const Line& line : chart.lines) {
    if (line.points.empty()) continue;
    html += fmt::format(R"(<span><i class="{}{}"></i>{}</span>)", line.colour,
                        line.is_dashed ? " dashed" : "", escape_html(line.label));
  }
  return html + "</div>";
}

/// The marks below the plot, by step and by time; the reader sees one of both.
std::string x_axis_of(const Chart& chart, const Axes& axes) {
  std::string html = fmt::format(R"(<div class="xs by-x">{}</div>)", ticks_of(axes.x, "left"));
  std::string unit = fmt::format(R"(<div class="x-unit by-x">{}</div>)", escape_html(chart.x_unit));
  if (chart.has_times) {
    html += fmt::format(R"(<div class="xs by-time" hidden>{}</div>)", ticks_of(axes.time, "left"));
    unit += R"(<div class="x-unit by-time" hidden>wall time</div>)";
  }
  return html + "</div>" + unit;
}

/// The highest time of any line.
double last_time_s(const Chart& chart) {
  double last = 0;
  for (const Line& line : chart.lines) {
    for (const Point& point : line.points) last = std::max(last, point.time_s);
  }
  return last;
}

}  // namespace

std::vector<Point> points_of(const Series& series, size_t most, double scale) {
  const auto& buckets = series.buckets();
  const size_t together = (buckets.size() + most - 1) / std::max<size_t>(most, 1);
  std::vector<Point> points;
  for (size_t i = 0; i < buckets.size(); i += together) {
    const size_t end = std::min(buckets.size(), i + together);
    Bucket all = buckets[i];
    for (size_t j = i + 1; j < end; ++j) {
      all.last_step = buckets[j].last_step;
      all.count += buckets[j].count;
      all.sum += buckets[j].sum;
      all.low = std::min(all.low, buckets[j].low);
      all.high = std::max(all.high, buckets[j].high);
    }
    const auto middle =
        std::midpoint(static_cast<double>(all.first_step), static_cast<double>(all.last_step));
    points.push_back({middle, all.mean() * scale, all.low * scale, all.high * scale});
  }
  return points;
}

std::string draw(const Chart& chart) {
  Range x;
  Range y;
  for (const Line& line : chart.lines) {
    for (const Point& point : line.points) {
      x.include(point.x, point.x);
      y.include(std::min(point.low, point.y), std::max(point.high, point.y));
    }
  }
  if (!(x.low <= x.high)) return "";

  const double highest = y.high;
  if (chart.cuts_peaks) y.high = without_peaks(chart, highest);
  if (chart.from_zero) y.low = std::min(0.0, y.low);
  Axes axes;
  const bool is_from_start = x.low >= 0 && x.low < x.high / 5;  // nearly
  axes.x = step_axis(is_from_start ? 0 : x.low, x.high, 6);
  if (chart.has_times) axes.time = time_axis(last_time_s(chart), 5);
  if (chart.is_stacked) {
    axes.y = linear_axis(0, 100, 4);
  } else if (chart.may_be_log && y.low > 0 && y.high / y.low > kLogFrom) {
    axes.y = log_axis(y.low, y.high);
  } else {
    axes.y = linear_axis(y.low, y.high, 4);
  }

  std::string note;
  if (chart.cuts_peaks && axes.y.high < highest) {
    note = fmt::format(R"(<p class="note">Peaks up to {} {} are cut off.</p>)",
                       readable_number(highest), chart.unit);
  }

  const std::string unit =
      chart.unit.empty() ? ""
                         : fmt::format(R"(<span class="unit">{}</span>)", escape_html(chart.unit));
  return fmt::format(
      R"(<figure class="chart"><figcaption><h3>{}</h3>{}{}</figcaption>{})"
      R"(<div class="plot"><div class="ys">{}</div><div class="area">{}<i class="cursor"></i></div>)"
      R"({}{})"
      R"(<script type="application/json">{}</script></figure>)",
      escape_html(chart.title), unit, axes.y.is_log ? R"( <span class="unit">log</span>)" : "",
      legend_of(chart), ticks_of(axes.y, "top"), svg_of(chart, axes), x_axis_of(chart, axes), note,
      values_of(chart, axes));
}

}  // namespace brim::experiment
