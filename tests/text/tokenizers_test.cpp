// Text to ids and back by each tokenizer. Against the Python package: test_tokenizers.py.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/text/byte_tokenizer.h"
#include "framework/text/char_tokenizer.h"
#include "framework/text/gpt2_words.h"
#include "framework/text/tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/text/small_vocabulary.h"

namespace brim::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const size_t size = first_word(text);
    result.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return result;
}

TEST(Gpt2Words, AsThePatternSplits) {
  EXPECT_THAT(words("Hello world's  12 dogs, 'tis!"),
              ElementsAre("Hello", " world", "'s", " ", " 12", " dogs", ",", " '", "tis", "!"));
  EXPECT_THAT(words("a\n\n b  "), ElementsAre("a", "\n\n", " b", "  "));
  EXPECT_THAT(words("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(words("''s 'S"), ElementsAre("''", "s", " '", "S"));
  EXPECT_THAT(words(" \xC2\xA0x"), ElementsAre(" ", "\xC2\xA0", "x"));
  EXPECT_THAT(words("é中1\xFF\xC3 "), ElementsAre("é中", "1", "\xFF\xC3", " "));
}

TEST(Gpt2Words, CutsAreWhereNothingChanges) {
  EXPECT_EQ(last_cut_between_words("hello world"), 5U);
  EXPECT_EQ(last_cut_between_words("it's"), 2U);
  EXPECT_EQ(last_cut_between_words("'s"), 0U);
  EXPECT_EQ(last_cut_between_words("  x"), 0U);
  EXPECT_EQ(last_cut_between_words("ab12"), 2U);
  EXPECT_EQ(last_cut_between_words("ab 12\xE4\xB8"), 2U);  // a character isn't whole yet
  EXPECT_EQ(last_cut_between_words(""), 0U);
  EXPECT_EQ(last_cut_between_words("\xE4\xB8"), 0U);
}

TEST(Gpt2, MergesInTheOrderOfTheFile) {
  const Gpt2Tokenizer tokenizer = testing::small_tokenizer();
  const auto pieces = [&](std::string_view text) {
    std::vector<std::string> result;
    for (const int32_t id : tokenizer.encode(text)) result.emplace_back(tokenizer.bytes(id));
    return result;
  };
  EXPECT_THAT(pieces("hello hell"), ElementsAre("hello", " ", "hell"));
  EXPECT_THAT(pieces("aaaaa"), ElementsAre("aa", "aaa"));
  EXPECT_THAT(pieces("aaa"), ElementsAre("aaa"));
  EXPECT_THAT(pieces("é's112"), ElementsAre("é", "'s", "1", "12"));
  EXPECT_THAT(pieces("<|endoftext|>"),
              ElementsAre("<", "|", "e", "n", "d", "o", "f", "t", "e", "x", "t", "|", ">"));
  EXPECT_EQ(tokenizer.bytes(tokenizer.end_of_text()), "<|endoftext|>");
  EXPECT_EQ(tokenizer.end_of_text(), tokenizer.vocabulary() - 1);
}

/// Bytes of all kinds, with runs: half are well-formed characters.
std::string random_text(RandomStream& random, size_t length) {
  constexpr std::string_view kOften = "helo 's12wa\n\t \xC3\xA9";
  std::string text;
  while (text.size() < length) {
    const uint32_t kind = random.next_u32() % 4;
    if (kind == 0) text.push_back(static_cast<char>(random.next_u32()));
    if (kind == 1) append_utf8(text, random.next_u32() % 0xD800);
    if (kind >= 2) {
      text.append(1 + random.next_u32() % 4, kOften[random.next_u32() % kOften.size()]);
    }
  }
  return text;
}

TEST(Gpt2, AnyBytesComeBackAndCutsChangeNothing) {
  const Gpt2Tokenizer tokenizer = testing::small_tokenizer();
  RandomStream random(1, 2, 3);
  const auto encoder = tokenizer.encoder();
  int cuts = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random, random.next_u32() % 100);
    std::vector<int32_t> ids;
    encoder->encode(text, ids);
    ASSERT_EQ(tokenizer.decode(ids), text);
    for (size_t length = 0; length <= text.size(); ++length) {
      const size_t cut = tokenizer.safe_cut(std::string_view(text).substr(0, length));
      cuts += cut > 0 ? 1 : 0;
      std::vector<int32_t> parts;
      encoder->encode(text.substr(0, cut), parts);
      encoder->encode(text.substr(cut), parts);
      ASSERT_EQ(parts, ids) << "cut at " << cut;
    }
  }
  EXPECT_GT(cuts, 10000);
}

TEST(Gpt2, LongWordsAndManyWords) {
  const Gpt2Tokenizer tokenizer = testing::small_tokenizer();
  const std::string long_word(kLongestWord * 2 + 3, 'a');
  const auto ids = tokenizer.encode(long_word);
  EXPECT_EQ(ids.size(), kLongestWord / 2 + 1);
  EXPECT_EQ(tokenizer.decode(ids), long_word);
  std::string many;  // more than an encoder remembers
  for (int i = 0; i < 150'000; ++i) many += fmt::format(" {}", i);
  const auto encoder = tokenizer.encoder();
  std::vector<int32_t> first;
  std::vector<int32_t> second;
  encoder->encode(many, first);
  encoder->encode(many, second);
  EXPECT_EQ(first, second);
  EXPECT_EQ(tokenizer.decode(first), many);
}

TEST(Gpt2, ThreadsShareATokenizer) {
  const Gpt2Tokenizer tokenizer = testing::small_tokenizer();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      RandomStream random(7, seed, 0);
      for (int i = 0; i < 200; ++i) {
        const std::string text = random_text(random, 200);
        if (tokenizer.decode(tokenizer.encode(text)) != text) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Bytes, AreTheirOwnIds) {
  const ByteTokenizer tokenizer;
  EXPECT_THAT(tokenizer.encode("a\xFF"), ElementsAre('a', 255));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', 255, 256}), "a\xFF<|endoftext|>");
  EXPECT_THROW(tokenizer.bytes(257), Error);
  EXPECT_THROW(tokenizer.bytes(-1), Error);
}

TEST(Chars, HaveTheTextsVocabulary) {
  const CharTokenizer tokenizer(CharTokenizer::tokens_for({U'b', U'é', U'中'}), "v");
  EXPECT_EQ(tokenizer.vocabulary(), 4);
  EXPECT_THAT(tokenizer.encode("中bé"), ElementsAre(2, 0, 1));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1, 3}), "é<|endoftext|>");
  EXPECT_EQ(tokenizer.safe_cut("b中\xE4\xB8"), 4U);
  EXPECT_THAT(error_of(Exit::kData, [&] { (void)tokenizer.encode("x"); }),
              HasSubstr("the character \"x\" (U+0078) is not in the vocabulary"));
  EXPECT_THAT(error_of(Exit::kData, [&] { (void)tokenizer.encode("b\x80"); }),
              HasSubstr("0x80 at byte 1"));
  EXPECT_THAT(error_of(Exit::kData, [] { CharTokenizer({"a"}, "v.json"); }),
              HasSubstr("v.json: the token"));
  EXPECT_THAT(error_of(Exit::kData,
                       [] {
                         CharTokenizer({"ab", "<|endoftext|>"}, "v.json");
                       }),
              HasSubstr("expected single characters"));
  EXPECT_THAT(error_of(Exit::kData,
                       [] {
                         CharTokenizer({"", "<|endoftext|>"}, "v.json");
                       }),
              HasSubstr("expected single characters"));
}

}  // namespace
}  // namespace brim::text
