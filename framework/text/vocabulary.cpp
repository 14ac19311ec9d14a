#include "framework/text/vocabulary.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"

namespace brim::text {
namespace {

using nlohmann::json;

struct Entry {
  std::string token;
  uint64_t id;
};

/// Takes the entries one by one as the parser meets them: a file never becomes a tree.
class EntryReader final : public nlohmann::json_sax<json> {
 public:
  explicit EntryReader(const std::string& where) : where_(where) {}

  std::vector<Entry> take() { return std::move(entries_); }

  bool start_object(size_t) override {
    if (is_open_) refuse("an object");
    is_open_ = true;
    return true;
  }
  bool end_object() override { return true; }
  bool key(std::string& text) override {
    token_ = std::move(text);
    return true;
  }
  bool number_unsigned(uint64_t id) override {
    if (!is_open_) refuse("a number");
    if (entries_.size() == kMaxTokens) {
      throw Error(Exit::kData, "{}: expected at most {} tokens, found more", where_, kMaxTokens);
    }
    entries_.push_back({std::move(token_), id});
    return true;
  }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("true or false"); }
  bool number_integer(int64_t) override { refuse("a negative number"); }
  bool number_float(double, const std::string&) override { refuse("a fraction"); }
  bool string(std::string&) override { refuse("text"); }
  bool binary(json::binary_t&) override { refuse("binary data"); }
  bool start_array(size_t) override { refuse("a list"); }
  bool end_array() override { refuse("a list"); }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    throw Error(Exit::kData, "{}: not valid JSON: {}; is the file whole?", where_,
                json_complaint(error));
  }

 private:
  [[noreturn]] void refuse(std::string_view found) const {
    if (!is_open_) {
      throw Error(Exit::kData, "{}: expected an object of tokens and ids, found {}", where_, found);
    }
    throw Error(Exit::kData, "{}: expected the id of the token {} as a whole number, found {}",
                where_, in_quotes(token_), found);
  }

  const std::string& where_;
  bool is_open_ = false;
  std::string token_;
  std::vector<Entry> entries_;
};

}  // namespace

std::vector<std::string> parse_vocabulary(std::string_view text, const std::string& where) {
  // The parser takes a NUL byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    throw Error(Exit::kData, "{}: expected JSON, found a NUL byte", where);
  }
  EntryReader reader(where);
  json::sax_parse(text, &reader);
  std::vector<Entry> entries = reader.take();
  std::vector<const Entry*> owner(entries.size(), nullptr);
  std::unordered_set<std::string_view> tokens;
  for (const Entry& entry : entries) {
    if (entry.id >= entries.size() || owner[entry.id] != nullptr) {
      throw Error(Exit::kData,
                  "{}: expected the ids 0 to {}, each once, for its {} tokens, found {} for {}{}",
                  where, entries.size() - 1, entries.size(), entry.id, in_quotes(entry.token),
                  entry.id < entries.size() ? " and for another" : "");
    }
    owner[entry.id] = &entry;
    if (!tokens.insert(entry.token).second) {
      throw Error(Exit::kData, "{}: the token {} is given twice", where, in_quotes(entry.token));
    }
  }
  std::vector<std::string> result;
  result.reserve(entries.size());
  for (const Entry* entry : owner) result.push_back(entry->token);
  return result;
}

std::string print_vocabulary(const std::vector<std::string>& tokens) {
  std::string text = "{";
  for (size_t id = 0; id < tokens.size(); ++id) {
    text += fmt::format("{}\n  {}: {}", id == 0 ? "" : ",", json(tokens[id]).dump(), id);
  }
  return text + "\n}\n";
}

std::vector<Merge> parse_merges(std::string_view text, const std::string& where) {
  std::vector<Merge> merges;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                         line.find(' ', space + 1) == std::string_view::npos;
    if (!is_pair || merges.size() == kMaxTokens) {
      throw Error(Exit::kData, "{}:{}: expected two tokens with a space between, found {}", where,
                  number, is_pair ? "too many lines" : in_quotes(line));
    }
    merges.push_back({line.substr(0, space), line.substr(space + 1), number});
  }
  return merges;
}

}  // namespace brim::text
