// Times that timestamp() (units.h) has written, read back.
#pragma once

#include <cstdint>
#include <string>

namespace brim {

/// "2026-11-25T09:35:20+0100" as seconds since 1970; 0 for another text.
int64_t unix_time_s(const std::string& timestamp);

}  // namespace brim
