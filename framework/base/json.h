// JSON from files that may be damaged: bounded in size and depth, no duplicate keys, errors in
// words. What the values mean is the caller's.
#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace brim {

/// What a text must stay within to be parsed.
struct JsonLimits {
  size_t bytes = size_t{64} << 20;
  int depth = 64;
};

/// Throws Error(kCheckpoint), naming `where`, for anything but one JSON value within `limits`.
nlohmann::json parse_json(std::string_view text, const std::string& where, JsonLimits limits = {});

/// The text of `value`, for parse_json() to read back as the same value. Throws Error(kBug) for a
/// value that JSON cannot hold: NaN, infinities, strings that are not UTF-8.
std::string print_json(const nlohmann::json& value, const std::string& where,
                       JsonLimits limits = {});

/// A line for other programs, with its end. What is not UTF-8, such as a file's name, becomes
/// U+FFFD.
std::string json_line(const nlohmann::json& value);

/// What a record that may be damaged says under a key; nullopt or "" where there is no such value.
std::optional<int64_t> integer_at(const nlohmann::json& record, const char* key);
std::string text_at(const nlohmann::json& record, const char* key);

/// A name or text from a file, quoted, escaped to ASCII and cut to a readable length.
std::string in_quotes(std::string_view text);

/// The parser's complaint: where and what, without the bytes it read.
std::string json_complaint(const std::exception& error);

}  // namespace brim
