#include "framework/telemetry/http/http_request.h"

#include <algorithm>

namespace brim::telemetry {
namespace {

constexpr size_t kLongestMethod = 16;

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_visible(char c) { return c > ' ' && c < 0x7f; }
/// Of a field's value: visible, blank, or beyond ASCII.
bool is_text(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f); }

/// The line up to "\n" or "\r\n", which is taken off the front too; `rest` has such an end.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool read_first_line(std::string_view line, HttpRequest& request) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end == method_end) return false;
  request.method = line.substr(0, method_end);
  const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  const std::string_view version = line.substr(target_end + 1);
  const size_t path_end = std::min(target.find('?'), target.size());
  request.path = target.substr(0, path_end);
  request.query = target.substr(std::min(path_end + 1, target.size()));
  return !request.method.empty() && request.method.size() <= kLongestMethod &&
         std::ranges::all_of(request.method, is_upper) && target.starts_with('/') &&
         std::ranges::all_of(target, is_visible) &&
         (version == "HTTP/1.1" || version == "HTTP/1.0");
}

bool is_host(std::string_view name) {
  constexpr std::string_view kHost = "host";
  return std::ranges::equal(name, kHost, [](char c, char wanted) { return (c | 0x20) == wanted; });
}

bool read_field(std::string_view line, HttpRequest& request) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  if (!std::ranges::all_of(name, is_visible) || !std::ranges::all_of(value, is_text)) return false;
  if (!is_host(name)) return true;
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_blank(value.back())) value.remove_suffix(1);
  const bool is_first = request.host.empty();
  request.host = value;
  return is_first;  // two hosts are none (RFC 9112, 3.2)
}

}  // namespace

HttpRequest read_request(std::string_view bytes) {
  HttpRequest request;
  const std::string_view head = bytes.substr(0, kLongestHead);
  std::string_view rest = head;
  for (bool is_first = true;; is_first = false) {
    if (rest.find('\n') == std::string_view::npos) {
      request = {};
      if (head.size() == kLongestHead) request.state = HttpRequest::State::kTooLong;
      return request;
    }
    const std::string_view line = take_line(rest);
    if (!is_first && line.empty()) break;
    if (!(is_first ? read_first_line(line, request) : read_field(line, request))) {
      request = {};
      request.state = HttpRequest::State::kBad;
      return request;
    }
  }
  request.state = HttpRequest::State::kWhole;
  return request;
}

}  // namespace brim::telemetry
