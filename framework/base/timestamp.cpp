#include "framework/base/timestamp.h"

#include <ctime>

namespace brim {

int64_t unix_time_s(const std::string& timestamp) {
  std::tm parts{};
  if (::strptime(timestamp.c_str(), "%Y-%m-%dT%H:%M:%S%z", &parts) == nullptr) return 0;
  const int64_t offset_s = parts.tm_gmtoff;
  return static_cast<int64_t>(::timegm(&parts)) - offset_s;
}

}  // namespace brim
