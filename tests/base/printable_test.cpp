#include "framework/base/printable.h"

#include <gtest/gtest.h>

namespace brim {
namespace {

TEST(Printable, ShowsControlCharactersByTheirBytes) {
  EXPECT_EQ(printable("\x1b[31mred\x7f\r"), "\\x1b[31mred\\x7f\\x0d");
  EXPECT_EQ(printable("a\nb\tc"), "a\\x0ab\\x09c");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

TEST(Printable, LinesKeepLineFeedsAndTabs) {
  EXPECT_EQ(printable_lines("a\tb\nc\x1b]0;title\x07"), "a\tb\nc\\x1b]0;title\\x07");
}

TEST(Printable, LeavesTextOfAnyLanguage) {
  const char* text = "3×4, 猫, émigré, 😀, \xc2\xa0";
  EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsC1ControlCharacters) {  // CSI as one character, and as one byte
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff\xe7\x8c"), "\\xff\\xe7\\x8c");
  EXPECT_EQ(printable("\xe7\x1b[m"), "\\xe7\\x1b[m");
}

TEST(Addresses, AreShownWithoutSecrets) {
  EXPECT_EQ(shown_address("https://me:pw@host/a@b/s.tar?token=1#x"), "https://host/a@b/s.tar");
  EXPECT_EQ(shown_address("https://host/s.tar"), "https://host/s.tar");
  EXPECT_EQ(shown_address("/folder/a?b@c.tar"), "/folder/a?b@c.tar");
  EXPECT_EQ(without_secrets("--set 'path=http://me:pw@h/{0..1}.tar?token=1' --to http://h/x\n"),
            "--set 'path=http://h/{0..1}.tar' --to http://h/x\n");
  EXPECT_EQ(without_secrets("http"), "http");
  EXPECT_EQ(without_secrets("is httpd? http://"), "is httpd? http://");
}

TEST(ShellWord, IsReadByAShellAsItIs) {
  EXPECT_EQ(shell_word("runs/digits"), "runs/digits");
  EXPECT_EQ(shell_word("runs/ü"), "runs/ü");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("runs/my run"), "'runs/my run'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
}

}  // namespace
}  // namespace brim
