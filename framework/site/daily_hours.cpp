#include "framework/site/daily_hours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace brim::site {
namespace {

constexpr int kMinutesOfDay = 24 * 60;
constexpr size_t kTimeLength = 5;  // "07:00"

std::optional<int> parse_minute(std::string_view text) {
  if (text.size() != kTimeLength || text[2] != ':') return std::nullopt;
  for (const size_t at : {0, 1, 3, 4}) {
    if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) return std::nullopt;
  }
  const int hour = 10 * (text[0] - '0') + text[1] - '0';
  const int minute = 10 * (text[3] - '0') + text[4] - '0';
  return hour < 24 && minute < 60 ? std::optional(60 * hour + minute) : std::nullopt;
}

}  // namespace

bool DailyHours::contains(const std::tm& local) const {
  const int now = 60 * local.tm_hour + local.tm_min;
  if (begin_minute < end_minute) return begin_minute <= now && now < end_minute;
  return begin_minute <= now || now < end_minute;
}

int DailyHours::seconds_left(const std::tm& local) const {
  const int minutes =
      (end_minute - 60 * local.tm_hour - local.tm_min + kMinutesOfDay) % kMinutesOfDay;
  return 60 * minutes - std::min(local.tm_sec, 59);
}

std::string DailyHours::end() const {
  return fmt::format("{:02}:{:02}", end_minute / 60, end_minute % 60);
}

std::optional<DailyHours> parse_daily_hours(std::string_view text) {
  if (text.size() != 2 * kTimeLength + 1 || text[kTimeLength] != '-') return std::nullopt;
  const auto begin = parse_minute(text.substr(0, kTimeLength));
  const auto end = parse_minute(text.substr(kTimeLength + 1));
  if (!begin || !end || *begin == *end) return std::nullopt;
  return DailyHours{.begin_minute = *begin, .end_minute = *end};
}

}  // namespace brim::site
