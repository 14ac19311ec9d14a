#include "framework/sweep/parallel_coordinates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "framework/experiment/report/axis.h"
#include "framework/experiment/report/html.h"
#include "framework/sweep/table.h"

namespace brim::sweep {
namespace {

using experiment::Axis;
using experiment::escape_html;
using experiment::Tick;

constexpr double kHeight = 320;
constexpr double kTop = 40;  // of the axes, below their names
constexpr double kBottom = 300;
constexpr double kLeft = 90;
constexpr double kWhole = 1120;   // where the axes are few
constexpr double kNearest = 180;  // from one axis to the next
constexpr double kLogFrom = 50;   // times from the lowest value to the highest
constexpr size_t kMaxWords = 24;  // marks of an axis without numbers
constexpr size_t kLongestMark = 24;

/// One axis and each trial's place on it, from 0 at the bottom to 1.
struct Upright {
  std::string name;
  std::vector<Tick> ticks;
  std::vector<double> places;
};

Upright numeric(std::string name, const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  const Axis axis = low > 0 && high / low >= kLogFrom ? experiment::log_axis(low, high)
                                                      : experiment::linear_axis(low, high, 5);
  Upright upright{.name = std::move(name), .ticks = {}, .places = {}};
  for (const Tick& tick : axis.ticks) upright.ticks.push_back({axis.place(tick.value), tick.text});
  for (const double value : values) upright.places.push_back(axis.place(value));
  return upright;
}

Upright of_words(std::string name, const std::vector<std::string>& values) {
  std::vector<std::string> words = values;
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  const auto place = [&](const std::string& word) {
    const auto index = std::ranges::lower_bound(words, word) - words.begin();
    return words.size() < 2 ? 0.5
                            : static_cast<double>(index) / static_cast<double>(words.size() - 1);
  };
  Upright upright{.name = std::move(name), .ticks = {}, .places = {}};
  for (const std::string& value : values) upright.places.push_back(place(value));
  if (words.size() > kMaxWords) words = {words.front(), words.back()};
  for (const std::string& word : words) {
    upright.ticks.push_back({place(word), word.substr(0, kLongestMark)});
  }
  return upright;
}

Upright of_key(const std::string& key, const std::vector<const Trial*>& trials) {
  std::vector<std::string> words;
  std::vector<double> numbers;
  for (const Trial* trial : trials) {
    words.push_back(value_at(*trial, key));
    if (const auto value = number_in(words.back())) numbers.push_back(*value);
  }
  return numbers.size() == words.size() ? numeric(key, numbers) : of_words(key, words);
}

double y_of(double place) { return kBottom - place * (kBottom - kTop); }

}  // namespace

std::string parallel_coordinates(const Plan& plan, std::span<const Trial> trials) {
  std::vector<const Trial*> shown;  // the best first
  for (const size_t place : ranking(plan, trials)) {
    if (trials[place].last() != nullptr) shown.push_back(&trials[place]);
  }
  if (shown.empty()) return "";
  std::vector<Upright> axes;
  for (const std::string& key : keys_of(trials)) axes.push_back(of_key(key, shown));
  std::vector<double> metrics;
  for (const Trial* trial : shown) metrics.push_back(trial->last()->metric);
  axes.push_back(numeric(plan.metric, metrics));

  const auto gaps = static_cast<double>(axes.size() - 1);
  const double apart = std::max(kNearest, (kWhole - 2 * kLeft) / gaps);
  const double width = 2 * kLeft + apart * gaps;
  std::string svg =
      fmt::format(R"(<svg class="trials" viewBox="0 0 {} {}" width="{}" height="{}" role="img" )"
                  R"(aria-label="a line for each trial, through its settings to its {}">)",
                  width, kHeight, width, kHeight, escape_html(plan.metric));
  for (size_t i = shown.size(); i-- > 0;) {
    std::string points;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      points += fmt::format("{}{:.1f},{:.1f}", axis == 0 ? "" : " ",
                            kLeft + apart * static_cast<double>(axis), y_of(axes[axis].places[i]));
    }
    const double share = axes.back().places[i];
    const double hue = 240 * (plan.is_lower_better ? share : 1 - share);  // red is good
    svg += fmt::format(
        R"svg(<polyline points="{}" fill="none" stroke="hsl({:.0f} 80% 50%)" stroke-width="{}" )svg"
        R"svg(stroke-opacity="{}"><title>trial {}: {} {}</title></polyline>)svg",
        points, hue, i == 0 ? 3 : 1.2, i == 0 ? 1.0 : 0.55, shown[i]->id, escape_html(plan.metric),
        experiment::readable_number(shown[i]->last()->metric));
  }
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const double x = kLeft + apart * static_cast<double>(axis);
    svg += fmt::format(R"(<text x="{}" y="18" text-anchor="middle" class="name">{}</text>)"
                       R"(<line x1="{}" y1="{}" x2="{}" y2="{}" class="axis"/>)",
                       x, escape_html(axes[axis].name), x, kTop, x, kBottom);
    for (const Tick& tick : axes[axis].ticks) {
      svg += fmt::format(R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)", x - 6,
                         y_of(tick.value) + 4, escape_html(tick.text));
    }
  }
  return svg + "</svg>";
}

}  // namespace brim::sweep
