#include "framework/telemetry/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/base/log.h"
#include "framework/base/units.h"

namespace brim::telemetry {
namespace {

constexpr double kLiveEvery_s = 0.1;
constexpr double kLineEvery_s = 5.0;
constexpr double kAverageOverSteps = 10.0;
constexpr int kShortestBar = 10;
constexpr int kLongestBar = 32;
constexpr std::string_view kGap = "  ";

// How much a part is wanted where not all fit; the smallest goes first.
enum Wanted { kRate, kStepTime, kEpoch, kBar, kSpeed, kTimeLeft, kLoss, kStep };

struct ProgressField {
  Wanted wanted;
  std::string text;
};

std::string format_step_time(double seconds) {
  if (seconds < 1.0) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 2 : 0);
  if (seconds < 10.0) return fmt::format("{:.2f} s", seconds);
  return format_duration(seconds);
}

std::string format_speed(double per_s, std::string_view samples) {
  if (per_s < 100.0) return fmt::format("{:.1f} {}/s", per_s, samples);
  return fmt::format("{} {}/s", format_count(std::llround(per_s)), samples);
}

/// In the order in which they are read.
std::vector<ProgressField> parts_of(const ProgressState& state) {
  std::vector<ProgressField> parts;
  if (state.epoch > 0) {
    parts.push_back({kEpoch, state.epochs > 0
                                 ? fmt::format("epoch {}/{}", state.epoch, state.epochs)
                                 : fmt::format("epoch {}", state.epoch)});
  }
  parts.push_back({kStep, state.steps > 0 ? fmt::format("step {}/{}", state.step, state.steps)
                                          : fmt::format("step {}", state.step)});
  if (state.step_s > 0.0) parts.push_back({kStepTime, format_step_time(state.step_s)});
  if (state.samples_per_s > 0.0 && std::isfinite(state.samples_per_s)) {
    parts.push_back({kSpeed, format_speed(state.samples_per_s, state.samples)});
  }
  if (state.loss.has_value()) {  // fmt would tell -nan from nan
    parts.push_back(
        {kLoss, std::isnan(*state.loss) ? "loss nan" : fmt::format("loss {:.4f}", *state.loss)});
  }
  parts.push_back({kRate, fmt::format("lr {}", format_number(state.learning_rate))});
  if (state.steps > state.step && state.step_s > 0.0) {
    const double left_s = static_cast<double>(state.steps - state.step) * state.step_s;
    parts.push_back({kTimeLeft, fmt::format("ETA {}", format_duration(left_s))});
  }
  return parts;
}

int joined_width(const std::vector<ProgressField>& parts) {
  size_t width = parts.empty() ? 0 : kGap.size() * (parts.size() - 1);
  for (const ProgressField& part : parts) width += part.text.size();
  return static_cast<int>(width);
}

std::string join(const std::vector<ProgressField>& parts) {
  std::string line;
  for (const ProgressField& part : parts) {
    if (!line.empty()) line += kGap;
    line += part.text;
  }
  return line;
}

/// "[=====>    ]", `width` columns in all.
std::string bar(double done, int width) {
  const auto inside = static_cast<size_t>(width - 2);
  const auto filled =
      static_cast<size_t>(std::floor(std::clamp(done, 0.0, 1.0) * static_cast<double>(inside)));
  std::string text(filled, '=');
  if (filled < inside) text += '>';
  text.resize(inside, ' ');
  return "[" + text + "]";
}

}  // namespace

std::string format_progress(const ProgressState& state, int width) {
  std::vector<ProgressField> parts = parts_of(state);
  const double done = static_cast<double>(state.step) / static_cast<double>(state.steps);
  if (state.steps > 0) {
    parts.insert(std::ranges::find(parts, kStep, &ProgressField::wanted),
                 {kBar, bar(done, kShortestBar)});
  }
  while (parts.size() > 1 && joined_width(parts) > width) {
    parts.erase(std::ranges::min_element(parts, {}, &ProgressField::wanted));
  }
  if (const auto found = std::ranges::find(parts, kBar, &ProgressField::wanted);
      found != parts.end()) {
    const int room = width - joined_width(parts);
    found->text = bar(done, std::min(kShortestBar + room, kLongestBar));
  }
  return join(parts).substr(0, static_cast<size_t>(std::max(width, 0)));
}

std::string format_progress_line(const ProgressState& state) { return join(parts_of(state)); }

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

Progress::Progress() : live_(log::is_terminal()) {}

Progress::~Progress() {
  if (live_) log::live("");
}

void Progress::update(const ProgressState& state, double now_s) {
  const double weight = 1.0 / std::min(static_cast<double>(++updates_), kAverageOverSteps);
  const double samples = state.samples_per_s * state.step_s;
  step_s_ += weight * (state.step_s - step_s_);
  if (std::isfinite(samples)) samples_per_step_ += weight * (samples - samples_per_step_);

  const bool is_edge = updates_ == 1 || state.step == state.steps;
  if (!is_edge && now_s - shown_s_ < (live_ ? kLiveEvery_s : kLineEvery_s)) return;
  shown_s_ = now_s;
  ProgressState averaged = state;
  averaged.step_s = step_s_;
  averaged.samples_per_s = step_s_ > 0.0 ? samples_per_step_ / step_s_ : 0.0;
  if (live_) {
    // The last column stays free: a terminal may wrap once it is written to.
    log::live(format_progress(averaged, terminal_width() - 1));
  } else {
    log::info("{}", format_progress_line(averaged));
  }
}

void Progress::note(const std::string& line) { log::info("{}", line); }

}  // namespace brim::telemetry
