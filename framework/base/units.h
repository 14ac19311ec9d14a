// Numbers as people read them, and the monotonic clock they are measured with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// "1 step", "1,234 steps"; `plural` where an s is not enough: "2 batches".
std::string format_plural(int64_t count, std::string_view noun, std::string_view plural = "");

/// Four significant digits and never an exponent: "0.01234", "123.4", "101,220"; "nan".
std::string format_number(double value);

/// Local time of the system clock as ISO 8601 with its offset, to the second.
std::string timestamp();

}  // namespace brim
