#include "framework/text/gpt2_words.h"

#include <array>

#include "framework/text/unicode.h"

namespace brim::text {
namespace {

struct Character {
  CharClass kind;
  size_t bytes;
};

Character first_character(std::string_view text) {
  const CodePoint point = first_code_point(text);
  if (point.bytes == 0) return {CharClass::kOther, 1};
  return {class_of(point.value), point.bytes};
}

/// Where a run of characters of this class that begins at `at` ends.
size_t end_of_run(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

/// The length of 's, 't, … at the start; 0 for none.
size_t contraction(std::string_view text) {
  constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t",  "'re", "'ve",
                                                             "'m", "'ll", "'d"};
  if (text[0] != '\'') return 0;
  for (const std::string_view ending : kContractions) {
    if (text.starts_with(ending)) return ending.size();
  }
  return 0;
}

/// White space up to the end of the text is one word. Before something else its last character is
/// left for the next word, unless it is the only one.
size_t space_word(std::string_view text) {
  size_t at = 0;
  size_t last = 0;  // where the last character of the run begins
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    if (next.kind != CharClass::kSpace) break;
    last = at;
    at += next.bytes;
  }
  return at == text.size() || last == 0 ? at : last;
}

/// Whether text can always be cut between two such neighbours. Not before letters behind a sign,
/// which may be a contraction.
bool may_cut(CharClass before, CharClass after) {
  if (before == after || before == CharClass::kSpace) return false;
  return before != CharClass::kOther || after != CharClass::kLetter;
}

/// Where the last character of `text`, which isn't empty, begins.
size_t last_character(std::string_view text) {
  for (size_t back = 1; back <= 4 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if (first_code_point(text.substr(at)).bytes == back) return at;
  }
  return text.size() - 1;
}

}  // namespace

size_t first_word(std::string_view text) {
  if (const size_t size = contraction(text); size != 0) return size;
  const Character first = first_character(text);
  if (first.kind != CharClass::kSpace) return end_of_run(text, first.bytes, first.kind);
  if (text[0] == ' ' && text.size() > 1) {
    const Character next = first_character(text.substr(1));
    if (next.kind != CharClass::kSpace) return end_of_run(text, 1 + next.bytes, next.kind);
  }
  return space_word(text);
}

size_t last_cut_between_words(std::string_view text) {
  // A character that is cut off at the end is not looked at: it isn't known yet.
  size_t at = text.size() - cut_off_bytes(text);
  if (at == 0) return 0;
  at = last_character(text.substr(0, at));
  CharClass after = first_character(text.substr(at)).kind;
  while (at > 0) {
    const size_t place = at;
    at = last_character(text.substr(0, at));
    const CharClass before = first_character(text.substr(at)).kind;
    if (may_cut(before, after)) return place;
    after = before;
  }
  return 0;
}

}  // namespace brim::text
