// A chart of a report: an SVG that stretches with the page, texts beside it that don't, and the
// values as JSON for the page's script, which shows them under the pointer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/experiment/series.h"

namespace brim::experiment {

struct Point {
  double x = 0.0;
  double y = 0.0;
  double low = 0.0;  // of what the point stands for
  double high = 0.0;
  double time_s = 0.0;  // the run's age then, where the chart has times
};

/// At most `most` points, whose x are steps; y is times `scale`.
std::vector<Point> points_of(const Series& series, size_t most, double scale = 1.0);

struct Line {
  std::string label;
  std::string colour;  // a class of the page's style: "r0" to "r7" of runs, "p0" to "p9" of phases
  std::vector<Point> points = {};
  bool has_dots = false;  // few points that matter each
  bool is_dashed = false;
};

/// A vertical line.
struct Mark {
  std::string colour;
  double x = 0.0;
  double time_s = 0.0;
};

struct Chart {
  std::string title;
  std::string unit = {};  // "" where the title says it
  std::string x_unit = "step";
  std::vector<Line> lines = {};
  std::vector<Mark> marks = {};  // where processes took over; within the lines' range
  bool has_times = false;        // every point has one: the page's script can show it by time
  bool from_zero = false;
  bool may_be_log = false;  // where values spread over more than two decades
  bool cuts_peaks = false;  // rare values far above the rest do not stretch the axis
  bool is_stacked = false;  // lines lie on each other, 0 to 100 %
};

/// A <figure>; "" where no line has a point.
std::string draw(const Chart& chart);

}  // namespace brim::experiment
