#include "framework/base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "framework/base/error.h"

namespace brim {
namespace {

using nlohmann::json;

constexpr size_t kLongestText = 120;  // of a file's content in a message

/// Called by the parser for each token; refuses too deep nesting and keys given twice. (The parser
/// itself keeps its state on the heap, so depth costs no stack before this sees it.)
class Guard {
 public:
  Guard(const std::string& where, int depth_limit) : where_(where), depth_limit_(depth_limit) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    if (depth > depth_limit_) {
      throw Error(Exit::kCheckpoint, "{}: expected JSON nested at most {} deep, found deeper",
                  where_, depth_limit_);
    }
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        throw Error(Exit::kCheckpoint, "{}: the key {} is given twice", where_, in_quotes(key));
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  int depth_limit_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

json parse_json(std::string_view text, const std::string& where, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    throw Error(Exit::kCheckpoint, "{}: expected at most {} bytes of JSON, found {}", where,
                limits.bytes, text.size());
  }
  // nlohmann's lexer takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    throw Error(Exit::kCheckpoint, "{}: expected JSON, found a NUL byte", where);
  }
  Guard guard(where, limits.depth);
  try {
    return json::parse(text, std::ref(guard));
  } catch (const json::exception& error) {
    throw Error(Exit::kCheckpoint, "{}: not valid JSON: {}", where, json_complaint(error));
  }
}

std::string print_json(const json& value, const std::string& where, JsonLimits limits) {
  std::string text;
  try {
    text = value.dump(2) + "\n";
  } catch (const json::exception& error) {
    throw Error(Exit::kBug, "{}: cannot be written as JSON: {}", where, json_complaint(error));
  }
  if (parse_json(text, where, limits) != value) {
    throw Error(Exit::kBug, "{}: holds a number that is not finite, which JSON cannot hold", where);
  }
  return text;
}

std::string json_line(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<int64_t> integer_at(const nlohmann::json& record, const char* key) {
  const auto found = record.is_object() ? record.find(key) : record.end();
  if (found == record.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

std::string text_at(const nlohmann::json& record, const char* key) {
  const auto found = record.is_object() ? record.find(key) : record.end();
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string in_quotes(std::string_view text) {
  const bool is_cut = text.size() > kLongestText;
  return json(text.substr(0, kLongestText)).dump(-1, ' ', true, json::error_handler_t::replace) +
         (is_cut ? "…" : "");
}

std::string json_complaint(const std::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 5: …; last read: '…'"
  std::string_view text = error.what();
  if (const size_t prefix = text.find("] "); prefix != std::string_view::npos) {
    text.remove_prefix(prefix + 2);
  }
  return std::string(text.substr(0, std::min(text.find("; last read"), kLongestText)));
}

}  // namespace brim
