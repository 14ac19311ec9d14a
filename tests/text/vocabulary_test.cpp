// Vocabulary files that are refused, and why. The good ones are test_tokenizers.py's.
#include "framework/text/vocabulary.h"

#include <gmock/gmock.h>

#include "framework/base/error.h"
#include "tests/support/error_of.h"
#include "tests/text/small_vocabulary.h"

namespace brim::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string vocabulary_message(const std::string& text) {
  return error_of(Exit::kData, [&] { parse_vocabulary(text, "vocab.json"); });
}

TEST(Vocabulary, TokensInTheOrderOfTheirIds) {
  EXPECT_THAT(parse_vocabulary(R"({"b": 1, "a\u00e9": 0, "\"": 2})", "v"),
              ElementsAre("aé", "b", "\""));
  EXPECT_THAT(parse_vocabulary(print_vocabulary({"\n", "\"", "中"}), "v"),
              ElementsAre("\n", "\"", "中"));
}

TEST(Vocabulary, WhatIsRefused) {
  using namespace std::string_literals;
  EXPECT_THAT(vocabulary_message(""), HasSubstr("vocab.json: not valid JSON: "));
  EXPECT_THAT(vocabulary_message(R"({"a": 0, "b")"), HasSubstr("is the file whole?"));
  EXPECT_THAT(vocabulary_message("{\"a\": 0}\0"s), HasSubstr("found a NUL byte"));
  EXPECT_THAT(vocabulary_message("[1]"), HasSubstr("expected an object of tokens and ids, found"));
  EXPECT_THAT(vocabulary_message("7"), HasSubstr("found a number"));
  EXPECT_THAT(vocabulary_message(R"({"a": {"b": 0}})"), HasSubstr("\"a\" as a whole number"));
  EXPECT_THAT(vocabulary_message(R"({"a": -1})"), HasSubstr("found a negative number"));
  EXPECT_THAT(vocabulary_message(R"({"a": 0.5})"), HasSubstr("found a fraction"));
  EXPECT_THAT(vocabulary_message(R"({"a": "0"})"), HasSubstr("found text"));
  EXPECT_THAT(vocabulary_message(R"({"a": 0, "b": 2})"), HasSubstr("the ids 0 to 1, each once"));
  EXPECT_THAT(vocabulary_message(R"({"a": 0, "b": 0})"), HasSubstr("0 for \"b\" and for another"));
  EXPECT_THAT(vocabulary_message(R"({"a": 0, "a": 1})"), HasSubstr("\"a\" is given twice"));
  EXPECT_THAT(vocabulary_message("{\"\xff\": 0}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(vocabulary_message(R"({"a": 18446744073709551615})"), HasSubstr("each once"));
  EXPECT_THAT(vocabulary_message(std::string(100000, '[')), HasSubstr("found a list"));
}

TEST(Merges, Lines) {
  const auto merges = parse_merges("#version: 0.2\r\na b\r\n\nab c", "merges.txt");
  ASSERT_EQ(merges.size(), 2U);
  EXPECT_EQ(merges[1].left, "ab");
  EXPECT_EQ(merges[1].right, "c");
  EXPECT_EQ(merges[1].line, 4);
  for (const std::string bad : {"a", "a b c", " a", "a ", "a  b"}) {
    EXPECT_THAT(error_of(Exit::kData, [&] { parse_merges("x y\n" + bad, "merges.txt"); }),
                HasSubstr("merges.txt:2: expected two tokens with a space between, found \""));
  }
}

/// What the tokenizer says to these files after `change`.
template <class Change>
std::string pair_message(Change change) {
  auto files = testing::small_vocabulary();
  change(files);
  return error_of(Exit::kData, [&] {
    Gpt2Tokenizer(files.vocabulary, "vocab.json", files.merges, "merges.txt");
  });
}

void replace(std::string& text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, what.size(), by);
}

TEST(Gpt2Files, ThatDoNotBelongTogether) {
  using Files = testing::SmallVocabulary;
  EXPECT_EQ(pair_message([](Files&) {}), "no error");
  EXPECT_THAT(pair_message([](Files& f) { f.merges += "hello w\n"; }),
              HasSubstr("merges.txt:15: the token \"hellow\" is not in vocab.json"));
  EXPECT_THAT(pair_message([](Files& f) { f.merges += "h e\n"; }),
              HasSubstr("merges.txt:15: this merge was in a line before"));
  EXPECT_THAT(pair_message([](Files& f) { replace(f.vocabulary, "\"!\"", "\"!!\""); }),
              HasSubstr("found none for 0x21"));
  EXPECT_THAT(pair_message([](Files& f) { replace(f.vocabulary, "\"<|endoftext|>\"", "\"<>\""); }),
              HasSubstr("\"<|endoftext|>\", which ends a document, is missing"));
  EXPECT_THAT(pair_message([](Files& f) { replace(f.vocabulary, "\"<|endoftext|>\"", "\"中\""); }),
              HasSubstr("characters that stand for bytes"));
  EXPECT_THAT(pair_message([](Files& f) { replace(f.merges, "he ll", "<|endof text|>"); }),
              HasSubstr("\"<|endoftext|>\" is not in vocab.json"));
}

}  // namespace
}  // namespace brim::text
