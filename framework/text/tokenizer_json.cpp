#include "framework/text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/json.h"

namespace brim::text {
namespace {

using nlohmann::json;

/// A setting that must have the value with which text becomes GPT-2's tokens.
struct Setting {
  const char* place;  // a JSON pointer
  json value;
  bool may_be_absent;  // and means this value then
};

std::vector<Setting> settings_of_gpt2() {
  return {{"/normalizer", nullptr, true},
          {"/pre_tokenizer/type", "ByteLevel", false},
          {"/pre_tokenizer/add_prefix_space", false, false},
          {"/pre_tokenizer/use_regex", true, true},
          {"/model/type", "BPE", true},
          {"/model/byte_fallback", false, true},
          {"/model/ignore_merges", false, true}};
}

std::string shown(const json& value) {
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  return value.is_string() ? in_quotes(value.get_ref<const std::string&>()) : value.dump();
}

void check_settings(const json& file, const std::string& where) {
  for (const auto& [place, value, may_be_absent] : settings_of_gpt2()) {
    const json::json_pointer pointer(place);
    const bool is_there = file.contains(pointer);
    if (is_there ? file.at(pointer) == value : may_be_absent) continue;
    throw Error(Exit::kData,
                "{}: expected GPT-2's kind of tokenizer, where {} is {}, found {}; encode the text "
                "with the package that made the file, and train on its ids",
                where, place, value.dump(), is_there ? shown(file.at(pointer)) : "none");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (text_at(file.at("model"), name).empty()) continue;
    throw Error(Exit::kData, "{}: expected GPT-2's kind of tokenizer, with no {}", where, name);
  }
}

/// Whether merges.txt can hold the token, to one side of a space.
bool is_word(const json& token) {
  if (!token.is_string()) return false;
  const auto& text = token.get_ref<const std::string&>();
  return !text.empty() &&
         std::none_of(text.begin(), text.end(), [](char byte) { return byte >= 0 && byte <= ' '; });
}

/// A merge is "left right", and ["left", "right"] since version 0.20 of the package.
std::string line_of(const json& merge, const std::string& where) {
  json pair = merge;
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = std::min(text.find(' '), text.size());
    pair = {text.substr(0, space), text.substr(std::min(space + 1, text.size()))};
  }
  if (!pair.is_array() || pair.size() != 2 || !is_word(pair[0]) || !is_word(pair[1])) {
    throw Error(Exit::kData, "{}: /model/merges: expected pairs of tokens without spaces, found {}",
                where, in_quotes(merge.dump()));
  }
  return fmt::format("{} {}\n", pair[0].get_ref<const std::string&>(),
                     pair[1].get_ref<const std::string&>());
}

void add_tokens(const json& file, json& vocabulary, const std::string& where) {
  const auto added = file.find("added_tokens");
  if (added == file.end() || !added->is_array()) return;
  for (const json& token : *added) {
    const std::string text = text_at(token, "content");
    const auto id = integer_at(token, "id");
    const auto known = vocabulary.find(text);
    if (text.empty() || !id || (known != vocabulary.end() && *known != *id)) {
      throw Error(Exit::kData,
                  "{}: /added_tokens: expected each token's content and its id in the vocabulary, "
                  "found {}",
                  where, in_quotes(token.dump()));
    }
    if (token.value("special", json()) != true) {
      throw Error(
          Exit::kData,
          "{}: expected GPT-2's kind of tokenizer, which cuts text into words and these into "
          "tokens, found the added token {}, which is looked for in the text first; encode "
          "the text with the package that made the file, and train on its ids",
          where, in_quotes(text));
    }
    vocabulary[text] = *id;
  }
}

}  // namespace

TokenizerTexts split_tokenizer_json(std::string_view text, const std::string& where) {
  json file;
  try {
    file = parse_json(text, where);
  } catch (const Error& error) {
    throw Error(Exit::kData, "{}", error.what());
  }
  const json::json_pointer merges("/model/merges");
  const json::json_pointer vocabulary("/model/vocab");
  if (!file.contains(merges) || !file.contains(vocabulary) || !file[merges].is_array() ||
      !file[vocabulary].is_object()) {
    throw Error(Exit::kData,
                "{}: expected a tokenizer.json, with a vocabulary and merges; for a vocab.json, "
                "give its --merges too",
                where);
  }
  check_settings(file, where);
  add_tokens(file, file[vocabulary], where);
  TokenizerTexts files = {file[vocabulary].dump(), "#version: 0.2\n"};
  for (const json& merge : file[merges]) files.merges += line_of(merge, where);
  return files;
}

}  // namespace brim::text
