#include "framework/experiment/report/html.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace brim::experiment {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(EscapeHtml, ReplacesWhatHtmlReadsAsItsOwn) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
}

TEST(EscapeHtml, KeepsCharactersOfAnyLength) {
  for (const std::string character :
       {"a", "\t", "\n", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF",
        "\xF0\x90\x80\x80", "\xF3\xBF\xBF\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(escape_html("<" + character + ">"), "&lt;" + character + "&gt;");
  }
}

TEST(EscapeHtml, ReplacesBytesThatAreNoCharacter) {
  const std::vector<std::string> bad = {"\x80",
                                        "\xC1\x80",
                                        "\xC2",
                                        "\xC2"
                                        "a",
                                        "\xE0\x9F\x80",
                                        "\xED\xA0\x80",
                                        "\xE2\x82",
                                        "\xE2"
                                        "a\x80",
                                        "\xF0\x8F\x80\x80",
                                        "\xF0\x90\x80",
                                        "\xF4\x90\x80\x80",
                                        "\xF5\x80\x80\x80",
                                        "\x01",
                                        "\x7F"};
  for (const std::string& bytes : bad) {
    const std::string escaped = escape_html(bytes);
    EXPECT_EQ(escaped.substr(0, 3), kReplacement);
    EXPECT_EQ(escaped.find(bytes), std::string::npos);
  }
}

}  // namespace
}  // namespace brim::experiment
