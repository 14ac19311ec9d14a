// Text from outside made safe for a page, and numbers made short.
#pragma once

#include <string>
#include <string_view>

namespace brim::experiment {

/// For text and for values of attributes in double quotes. What is not UTF-8, and control
/// characters other than tab and line feed, become U+FFFD.
std::string escape_html(std::string_view text);

/// A JSON string, quotes included, that may stand inside <script>. Cleaned as above.
std::string script_string(std::string_view text);

/// RFC 4648, padded: for images within the page.
std::string base64(std::string_view bytes);

/// The value with about `digits` significant digits, as JSON takes it: "0.01235", "1.2e-07".
std::string short_number(double value, int digits = 5);

/// "1,540", "0.0123", "2.5e-07": for people.
std::string readable_number(double value);

}  // namespace brim::experiment
