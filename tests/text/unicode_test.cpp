// UTF-8 as Unicode defines it, and the classes of characters.
#include "framework/text/unicode.h"

#include <gmock/gmock.h>

namespace brim::text {
namespace {

TEST(Utf8, EachCodePointComesBack) {
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    append_utf8(text, point);
    const CodePoint found = first_code_point(text);
    ASSERT_EQ(found.value, point);
    ASSERT_EQ(found.bytes, text.size());
    ASSERT_EQ(well_formed_bytes(text), text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(cut_off_bytes("x" + text.substr(0, cut)), cut) << static_cast<uint32_t>(point);
      ASSERT_EQ(first_code_point(text.substr(0, cut)).bytes, 0U);
    }
    ASSERT_EQ(cut_off_bytes(text), 0U);
  }
}

TEST(Utf8, WhatIsNotWellFormed) {
  using namespace std::string_literals;
  for (const std::string& bad :
       {"\x80"s, "\xC0\x80"s, "\xC1\xBF"s, "\xE0\x9F\xBF"s, "\xED\xA0\x80"s, "\xF0\x8F\xBF\xBF"s,
        "\xF4\x90\x80\x80"s, "\xF5\x80\x80\x80"s, "\xFF"s, "\xE2\x82x"s, "\xC3"s}) {
    EXPECT_EQ(first_code_point(bad).bytes, 0U);
    EXPECT_EQ(well_formed_bytes("0123456789" + bad), 10U);
    const std::string fixed = well_formed("ab" + bad + "é");
    EXPECT_EQ(well_formed_bytes(fixed), fixed.size());
    EXPECT_EQ(fixed.substr(0, 5), "ab\uFFFD");
    EXPECT_EQ(fixed.substr(fixed.size() - 2), "é");
  }
  EXPECT_EQ(well_formed_bytes("abc\0def"s), 7U);
  EXPECT_EQ(well_formed("abc\0dé中"s), "abc\0dé中"s);
  EXPECT_EQ(well_formed("\xE2\x82x"), "\uFFFD\uFFFDx");
  EXPECT_EQ(cut_off_bytes("a\xE0\x80"), 0U);  // no character begins so
  EXPECT_EQ(cut_off_bytes("a\x80\x80"), 0U);
  EXPECT_EQ(cut_off_bytes(""), 0U);
}

TEST(Classes, Characters) {
  EXPECT_EQ(class_of(U'a'), CharClass::kLetter);
  EXPECT_EQ(class_of(U'ß'), CharClass::kLetter);
  EXPECT_EQ(class_of(U'中'), CharClass::kLetter);
  EXPECT_EQ(class_of(U'0'), CharClass::kNumber);
  EXPECT_EQ(class_of(U'Ⅷ'), CharClass::kNumber);
  EXPECT_EQ(class_of(U'½'), CharClass::kNumber);
  EXPECT_EQ(class_of(0x3000), CharClass::kSpace);
  EXPECT_EQ(class_of(0x85), CharClass::kSpace);
  EXPECT_EQ(class_of(0x200B), CharClass::kOther);  // a space of no width is no white space
  EXPECT_EQ(class_of(0x301), CharClass::kOther);   // a combining accent
  EXPECT_EQ(class_of(U'😀'), CharClass::kOther);
  EXPECT_EQ(class_of(0x10FFFF), CharClass::kOther);
}

}  // namespace
}  // namespace brim::text
