// Values and ranges as text, in one wording for errors, the printed recipe and the reference page.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/recipe/fields.h"

namespace brim::recipe {

/// A TOML basic string with its quotes.
std::string toml_string(std::string_view text);

/// A TOML float that reads back as the same double: "0.1", "1.0", "1e-05".
std::string toml_number(double value);

/// "at least 1", "above 0", "from 0 to 1", "at least 0 and below 1"; "" for any number.
std::string range_text(const Range& range);

/// `"a", "b", "c"`.
std::string words_text(std::span<const std::string_view> words);

/// Absolute and without "." or ".."; an empty path ("not given") stays empty. A relative path
/// starts from `folder`.
std::filesystem::path resolve(const std::filesystem::path& path,
                              const std::filesystem::path& folder);

/// Each value as the printed recipe has it.
inline std::string value_text(bool v) { return v ? "true" : "false"; }
inline std::string value_text(int64_t v) { return std::to_string(v); }
inline std::string value_text(double v) { return toml_number(v); }
inline std::string value_text(const std::string& v) { return toml_string(v); }
inline std::string value_text(const std::filesystem::path& v) { return toml_string(v.string()); }
template <class T>
std::string value_text(const std::optional<T>& v) {
  return v ? value_text(*v) : "\"auto\"";
}
template <class T>
std::string value_text(const std::vector<T>& list) {
  std::string text;
  for (const T& element : list) text += (text.empty() ? "" : ", ") + value_text(element);
  return "[" + text + "]";
}

}  // namespace brim::recipe
