#include "framework/experiment/report/treemap.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "framework/experiment/report/html.h"

namespace brim::experiment {
namespace {

constexpr int kTreemapColours = 8;  // of runs, in the page's style
constexpr double kAspect = 2.4;     // the drawing's width over its height, on a wide page
constexpr double kNamedWidth = 6;   // per cent of the drawing, from which on a name fits
constexpr double kNamedHeight = 6;
constexpr double kLeastShare = 1e-4;  // of the whole: what is less can't be seen

/// The worst ratio of sides in a row of areas that sum to `sum`, laid along a side that is `side`.
double worst_ratio(double smallest, double largest, double sum, double side) {
  const double square = sum * sum, across = side * side;
  return std::max(across * largest / square, square / (across * smallest));
}

/// Takes a row of areas [first, last) off `rest`.
void lay_row(const std::vector<double>& areas, size_t first, size_t last, Rectangle& rest,
             std::vector<Rectangle>& result) {
  const double sum = std::accumulate(areas.begin() + static_cast<std::ptrdiff_t>(first),
                                     areas.begin() + static_cast<std::ptrdiff_t>(last), 0.0);
  const bool is_column = rest.width >= rest.height;
  const double side = is_column ? rest.height : rest.width;
  const double depth = side > 0 ? sum / side : 0;
  double at = is_column ? rest.y : rest.x;
  for (size_t i = first; i < last; ++i) {
    const double length = depth > 0 ? areas[i] / depth : 0;
    result.push_back(is_column ? Rectangle{rest.x, at, depth, length}
                               : Rectangle{at, rest.y, length, depth});
    at += length;
  }
  if (is_column) {
    rest.x += depth;
    rest.width = std::max(0.0, rest.width - depth);
  } else {
    rest.y += depth;
    rest.height = std::max(0.0, rest.height - depth);
  }
}

struct TreemapGroup {
  std::string name;
  double value = 0.0;
  std::vector<TreemapPart> parts = {};
};

/// Largest first, and so their parts.
std::vector<TreemapGroup> groups_of(std::vector<TreemapPart> parts) {
  std::map<std::string, TreemapGroup> by_name;
  for (TreemapPart& part : parts) {
    if (!(part.value > 0)) continue;
    TreemapGroup& group = by_name[part.group];
    group.name = part.group;
    group.value += part.value;
    group.parts.push_back(std::move(part));
  }
  std::vector<TreemapGroup> groups;
  for (auto& [name, group] : by_name) {
    std::ranges::stable_sort(group.parts, std::greater<>{}, &TreemapPart::value);
    groups.push_back(std::move(group));
  }
  std::ranges::stable_sort(groups, std::greater<>{}, &TreemapGroup::value);
  return groups;
}

template <class T>
std::vector<double> sizes_of(const std::vector<T>& items) {
  std::vector<double> values;
  for (const T& item : items) values.push_back(item.value);
  return values;
}

/// `place` is in the aspect's coordinates: 100 · kAspect wide.
std::string treemap_cell(const TreemapPart& part, const Rectangle& place, size_t colour) {
  const bool is_named = place.width / kAspect >= kNamedWidth && place.height >= kNamedHeight;
  const std::string name = is_named ? "<span>" + escape_html(part.name) + "</span>" : "";
  return fmt::format(
      R"(<div class="cell r{}" style="left:{:.3f}%;top:{:.3f}%;width:{:.3f}%;height:{:.3f}%" )"
      R"(title="{}: {}">{}</div>)",
      colour % kTreemapColours, place.x / kAspect, place.y, place.width / kAspect, place.height,
      escape_html(part.name), escape_html(part.details), name);
}

}  // namespace

std::vector<Rectangle> squarify(const std::vector<double>& values, const Rectangle& whole) {
  std::vector<Rectangle> result;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (!(sum > 0)) return std::vector<Rectangle>(values.size(), Rectangle{whole.x, whole.y, 0, 0});
  std::vector<double> areas;
  for (const double value : values) areas.push_back(value / sum * whole.width * whole.height);
  Rectangle rest = whole;
  for (size_t first = 0; first < areas.size();) {
    const double side = std::min(rest.width, rest.height);
    double row = areas[first];
    size_t last = first + 1;
    while (last < areas.size() && areas[last] > 0) {
      const double now = worst_ratio(areas[last - 1], areas[first], row, side);
      const double then = worst_ratio(areas[last], areas[first], row + areas[last], side);
      if (then > now) break;
      row += areas[last++];
    }
    lay_row(areas, first, last, rest, result);
    first = last;
  }
  return result;
}

std::string draw_treemap(std::vector<TreemapPart> parts) {
  const std::vector<TreemapGroup> groups = groups_of(std::move(parts));
  if (groups.empty()) return "";
  const std::vector<double> values = sizes_of(groups);
  const double least = kLeastShare * std::accumulate(values.begin(), values.end(), 0.0);
  const std::vector<Rectangle> places = squarify(values, {0, 0, 100 * kAspect, 100});
  std::string cells;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<Rectangle> inner = squarify(sizes_of(groups[i].parts), places[i]);
    for (size_t j = 0; j < inner.size(); ++j) {
      if (groups[i].parts[j].value >= least) cells += treemap_cell(groups[i].parts[j], inner[j], i);
    }
  }
  return R"(<div class="treemap">)" + cells + "</div>";
}

}  // namespace brim::experiment
