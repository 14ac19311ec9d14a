// A part of each day by local time, such as "22:00-07:00".
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace brim::site {

struct DailyHours {
  int begin_minute = 0;  // of the day
  int end_minute = 0;    // before begin_minute where midnight lies between

  bool contains(const std::tm& local) const;
  /// From a moment within to the end; a change of the clocks between is not seen.
  int seconds_left(const std::tm& local) const;
  /// "07:00".
  std::string end() const;
};

/// nullopt for anything but "HH:MM-HH:MM" with two different times.
std::optional<DailyHours> parse_daily_hours(std::string_view text);

}  // namespace brim::site
