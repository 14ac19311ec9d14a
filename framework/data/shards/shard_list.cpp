#include "framework/data/shards/shard_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "framework/base/error.h"
#include "framework/base/printable.h"
#include "framework/base/words.h"

namespace brim::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxShards = 1'000'000;

struct Range {
  int64_t first;
  int64_t last;
  size_t digits;  // of each number, zeros in front
};

std::optional<int64_t> number(std::string_view text) {
  constexpr size_t kMaxDigits = 12;
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = code == std::errc() && end == text.data() + text.size();
  if (!is_number || text.size() > kMaxDigits || value < 0) return {};
  return value;
}

/// "000..127"; nullopt for another text.
std::optional<Range> parse_range(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {};
  const std::string_view first = text.substr(0, dots);
  const std::string_view last = text.substr(dots + 2);
  const auto low = number(first);
  const auto high = number(last);
  if (!low || !high) return {};
  const bool is_padded = first.starts_with('0') || last.starts_with('0');
  return Range{*low, *high, is_padded ? std::max(first.size(), last.size()) : 0};
}

[[noreturn]] void refuse(const std::string& pattern, const char* expected) {
  throw Error(Exit::kRecipe, "{}: expected {}, such as shard-{{000..127}}.tar",
              shown_address(pattern), expected);
}

/// What the text between two braces stands for.
std::vector<std::string> choices(std::string_view text, const std::string& pattern) {
  std::vector<std::string> result;
  if (const auto range = parse_range(text)) {
    if (range->last < range->first) refuse(pattern, "a range from a lower to a higher number");
    if (range->last - range->first >= static_cast<int64_t>(kMaxShards)) {
      refuse(pattern, "at most a million shards");
    }
    for (int64_t i = range->first; i <= range->last; ++i) {
      result.push_back(fmt::format("{:0{}}", i, range->digits));
    }
    return result;
  }
  if (text.find(',') == std::string_view::npos) {
    refuse(pattern, "a range or words with commas between braces");
  }
  for (const std::string_view piece : split(text)) result.emplace_back(piece);
  return result;
}

std::vector<std::string> tars_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code code;
  fs::directory_iterator it(folder, code);
  for (; !code && it != fs::directory_iterator(); it.increment(code)) {
    if (is_shard(it->path())) paths.push_back(it->path().string());
  }
  if (code) throw Error(Exit::kData, "{}: cannot read the folder: {}", folder, code.message());
  if (paths.empty()) throw Error(Exit::kData, "{}: expected shards (*.tar), found none", folder);
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

bool is_shard(const fs::path& file) {
  return file.extension() == ".tar" && !file.filename().string().starts_with('.');
}

bool is_url(std::string_view address) {
  return address.starts_with("http://") || address.starts_with("https://");
}

std::vector<std::string> expand_braces(const std::string& pattern) {
  std::vector<std::string> results = {""};
  const std::string_view text = pattern;
  for (size_t position = 0; position < text.size();) {
    const size_t open = std::min(text.find_first_of("{}", position), text.size());
    for (std::string& result : results) result += text.substr(position, open - position);
    if (open == text.size()) break;
    const size_t close = text.find_first_of("{}", open + 1);
    if (text[open] == '}' || close == std::string_view::npos || text[close] == '{') {
      refuse(pattern, "each { with its }");
    }
    const auto parts = choices(text.substr(open + 1, close - open - 1), pattern);
    if (parts.size() > kMaxShards / results.size()) refuse(pattern, "at most a million shards");
    std::vector<std::string> longer;
    longer.reserve(results.size() * parts.size());
    for (const std::string& result : results) {
      for (const std::string& part : parts) longer.push_back(result + part);
    }
    results = std::move(longer);
    position = close + 1;
  }
  return results;
}

std::vector<std::string> list_shards(const std::string& pattern) {
  std::error_code code;
  if (!is_url(pattern)) {
    if (fs::is_directory(pattern, code)) return tars_in(pattern);
    if (fs::exists(pattern, code)) return {pattern};  // whatever its name
  }
  return expand_braces(pattern);
}

}  // namespace brim::data
