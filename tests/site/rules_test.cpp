// Which files of rules are read, and how the bad ones are refused.
#include "framework/site/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace brim::site {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kGood = R"(contact = "gpus@example.org"

[defaults]
precision.mode = "bf16"

[rules.students]
groups = ["students", "!staff"]
devices = ["0", "GPU-8932", "cpu"]
at_most = 2
memory_gib = 20
hours = 8.5
quiet_hours = "22:00-07:00"
yields_to = ["vllm", "/run/inference"]
idle_minutes = 30
)";

TEST(Rules, AGoodFileIsRead) {
  const Site site = parse_site(kGood, "site.toml");
  ASSERT_EQ(site.rules.size(), 1U);
  const Rule& rule = site.rules[0];
  EXPECT_EQ(rule.name, "students");
  EXPECT_THAT(rule.groups, ElementsAre("students", "!staff"));
  EXPECT_EQ(rule.at_most, 2);
  EXPECT_EQ(rule.hours, 8.5);
  EXPECT_EQ(rule.quiet->begin_minute, 22 * 60);
  EXPECT_TRUE(site.defaults.has_value());
  EXPECT_EQ(site.cite(rule, "at_most"), "rule 'students' (site.toml:9)");
}

struct BadContent {
  const char* text;
  const char* words;  // of the refusal, its place first
};

class BadContents : public ::testing::TestWithParam<BadContent> {};

TEST_P(BadContents, AreRefusedWithTheirLine) {
  const std::string said = error_of(Exit::kRecipe, [&] {
    parse_site("contact = \"ada\"\n" + std::string(GetParam().text), "s");
  });
  EXPECT_THAT(said, HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Thirty, BadContents,
    ::testing::Values(
        BadContent{"[rules.a\nat_most = 1", "s:2:"}, BadContent{"contact = \"eve\"", "s:2:"},
        BadContent{"\xff\xfe", "expected UTF-8 text, found other bytes"},
        BadContent{"x = "
                   "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                   "nested too deep"},
        BadContent{"[rule.a]\nat_most = 1",
                   "s:2:2: unknown section 'rule' at the top level; did you "
                   "mean 'rules'?"},
        BadContent{"rules = 3", "s:2:9: 'rules' at the top level: expected a section [rules]"},
        BadContent{"[rules]\na = 1", "s:3:5: 'a' in [rules]: expected a section [rules.a]"},
        BadContent{"[rules.\"a b\"]\nat_most = 1", "\"a b\" is no rule's name"},
        BadContent{"[rules.a]", "it limits nothing"},
        BadContent{"[rules.a]\nusers = [\"ann\"]", "it limits nothing"},
        BadContent{"[rules.a]\nat_mots = 1",
                   "s:3:1: unknown key 'at_mots' in [rules.a]; did you "
                   "mean 'at_most'?"},
        BadContent{"[rules.a]\nat_most = -1",
                   "s:3:11: 'at_most' in [rules.a]: expected an integer "
                   "from 0 to 1024"},
        BadContent{"[rules.a]\nat_most = 1.5",
                   "s:3:11: 'at_most' in [rules.a]: expected an integer"},
        BadContent{"[rules.a]\nat_most = \"two\"", "s:3:11:"},
        BadContent{"[rules.a]\nat_most = 1\nat_most = 2", "s:4:1: duplicate key 'at_most'"},
        BadContent{"[rules.a]\nmemory_gib = 0", "expected a number above 0"},
        BadContent{"[rules.a]\nmemory_gib = nan", "expected a finite number above 0"},
        BadContent{"[rules.a]\nhours = -1", "s:3:9: 'hours' in [rules.a]"},
        BadContent{"[rules.a]\nhours = 1979-05-27", "s:3:9: no key takes a date or time"},
        BadContent{"[rules.a]\nusers = \"ann\"\nhours = 1",
                   "s:3:9: 'users' in [rules.a]: expected a "
                   "list of strings"},
        BadContent{"[rules.a]\nusers = []\nhours = 1",
                   "s:3:9: 'users' in [rules.a]: expected at "
                   "least one name"},
        BadContent{"[rules.a]\nusers = [7]\nhours = 1", "expected a string, found the integer 7"},
        BadContent{"[rules.a]\ngroups = [\"!\"]\nhours = 1", "expected a group's name"},
        BadContent{"[rules.a]\ndevices = [\"gpu0\"]\nhours = 1",
                   "s:3:11: 'devices' in [rules.a]: "
                   "expected \"cpu\", a GPU's index"},
        BadContent{"[rules.a]\ndevices = [\"128\"]\nhours = 1", "expected \"cpu\", a GPU's index"},
        BadContent{"[rules.a]\nquiet_hours = \"22-07\"",
                   "s:3:15: 'quiet_hours' in [rules.a]: expected "
                   "two times of the day"},
        BadContent{"[rules.a]\nquiet_hours = \"24:00-07:00\"", "expected two times of the day"},
        BadContent{"[rules.a]\nquiet_hours = \"07:00-07:00\"", "expected two times of the day"},
        BadContent{"[rules.a]\nquiet_hours = \"\"", "expected two times of the day"},
        BadContent{"[rules.a]\nyields_to = []", "expected at least one name"},
        BadContent{"[rules.a]\nyields_to = [\"run/busy\"]",
                   "expected a program's name or a file's "
                   "whole path"},
        BadContent{"[rules.a]\nidle_utilisation = 2", "expected a number from 0 to 1"},
        BadContent{"defaults = \"bf16\"", "s:2:12: 'defaults': expected a section [defaults]"}));

TEST(Rules, EveryProblemIsListed) {
  const std::string said = error_of(Exit::kRecipe, [] {
    parse_site("[rules.a]\ndevices = [\"x\"]\nquiet_hours = \"y\"\ncontact = \"ada\"", "s");
  });
  EXPECT_THAT(said, AllOf(HasSubstr("unknown key 'contact' in [rules.a]"),
                          HasSubstr("missing key 'contact'")));
  EXPECT_THAT(error_of(Exit::kRecipe,
                       [] {
                         parse_site(
                             "contact = \"a\"\n[rules.a]\ndevices = [\"x\"]\nquiet_hours = \"y\"",
                             "s");
                       }),
              AllOf(HasSubstr("s:3:"), HasSubstr("s:4:")));
}

/// A file that BRIM_SITE names.
class SiteFile : public ::testing::Test {
 protected:
  SiteFile() {
    ::setenv("BRIM_SITE", file_.c_str(), 1);
    ::chmod(folder_.path().c_str(), 0755);
  }
  ~SiteFile() override { ::unsetenv("BRIM_SITE"); }
  void write(const std::string& text) {
    std::ofstream(file_) << text;
    ::chmod(file_.c_str(), 0644);
  }
  static std::string refusal() {
    return error_of(Exit::kRecipe, [] { read_site(); });
  }

  brim::testing::TemporaryFolder folder_;
  fs::path file_ = folder_ / "site.toml";
};

TEST_F(SiteFile, IsReadWhereItsOwnerIsRootOrTheUser) {
  write(kGood);
  EXPECT_EQ(read_site().contact, "gpus@example.org");
  EXPECT_EQ(read_site().file, file_);
}

TEST_F(SiteFile, MustBeThereWhereItIsNamed) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("BRIM_SITE names this file, and it is not there"),
                               HasSubstr("nothing trains here until")));
}

TEST_F(SiteFile, IsRefusedWhereOthersMayWriteToIt) {
  write(kGood);
  ::chmod(file_.c_str(), 0646);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("others may write to it (mode 646)"), HasSubstr("chmod go-w")));
  ::chmod(file_.c_str(), 0644);
  ::chmod(folder_.path().c_str(), 0777);
  EXPECT_THAT(refusal(),
              HasSubstr(fs::canonical(folder_.path()).string() + ": others may write to it"));
}

TEST_F(SiteFile, IsRefusedWhereItIsAnotherUsers) {
  if (::geteuid() != 0) return;  // only root gives files away
  write(kGood);
  ASSERT_EQ(::chown(file_.c_str(), 12345, 0), 0);
  EXPECT_THAT(refusal(), HasSubstr("found 12345's"));
}

TEST_F(SiteFile, MayBeNoPipeNoFolderAndNoHugeFile) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("a pipe"));
  fs::remove(file_);
  fs::create_directory(file_);
  EXPECT_THAT(refusal(), HasSubstr("a folder"));
  fs::remove(file_);
  write(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(refusal(), HasSubstr("expected at most 1048576 bytes"));
  write("");
  EXPECT_THAT(refusal(), HasSubstr("the file is empty"));
}

}  // namespace
}  // namespace brim::site
