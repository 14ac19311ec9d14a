// Figures as people read them, and the monotonic clock they are measured with.
#pragma once

#include <cstdint>
#include <string>

namespace brim {

/// Seconds since an arbitrary start; never goes back.
double now_s();

/// Seconds since this process was started, to the clock tick (10 ms).
double process_age_s();

/// "512 B", "1.5 MiB", "139.0 GiB".
std::string format_bytes(int64_t bytes);

/// "0.8 s", "3 m 05 s", "2 h 10 m"; "unknown" for an endless or undefined time.
std::string format_duration(double seconds);

/// "1,234,567".
std::string format_count(int64_t count);

/// Local time of the system clock as ISO 8601 with its offset, to the second.
std::string timestamp();

}  // namespace brim
