// Tar archives as they come, and as an attacker makes them.
#include "framework/data/shards/tar.h"

#include <gmock/gmock.h>

#include "framework/base/error.h"
#include "framework/data/shards/tar_writer.h"
#include "tests/data/tar_support.h"

namespace brim::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// "name=content" of each regular file.
std::vector<std::string> list(const std::string& bytes) {
  const Archive archive(bytes);
  TarReader reader(archive.source);
  std::vector<std::string> result;
  while (const auto member = reader.next()) {
    const auto content = reader.bytes(member->offset, member->size);
    result.push_back(member->name + "=" + std::string(content.begin(), content.end()));
  }
  return result;
}

std::string reading_error(const std::string& bytes) {
  try {
    list(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kData);
    return error.what();
  }
  return "no error";
}

TEST(TarTest, ReadsFilesInOrderAndPassesOverTheRest) {
  const std::string bytes = member("d/", "", '5') + member("d/a.txt", "one") +
                            member("l", "", '2') + member("empty", "") +
                            member("b", std::string(5000, 'x'), '\0') + member("old/", "", '\0') +
                            member("c", "two", '7') + end_of_archive();
  EXPECT_THAT(list(bytes),
              ElementsAre("d/a.txt=one", "empty=", "b=" + std::string(5000, 'x'), "c=two"));
  const Archive archive(bytes);
  TarReader reader(archive.source);
  while (reader.next()) {
  }
  EXPECT_EQ(reader.passed_over(), 1);
}

TEST(TarTest, OneBlockOfZerosEndsAnArchiveAndNothingAfterItIsRead) {
  EXPECT_THAT(list(member("a", "1") + std::string(512, '\0')), ElementsAre("a=1"));
  EXPECT_THAT(list(member("a", "1") + end_of_archive() + member("b", "2")), ElementsAre("a=1"));
}

TEST(TarTest, TellsWhetherAnythingFollowsTheEnd) {
  const auto has_more = [](const std::string& bytes) {
    const Archive archive(bytes);
    TarReader reader(archive.source);
    while (reader.next()) {
    }
    return reader.has_more();
  };
  const std::string one = member("a", "1") + end_of_archive();
  EXPECT_FALSE(has_more(member("a", "1") + std::string(512, '\0')));
  EXPECT_FALSE(has_more(one));
  EXPECT_FALSE(has_more(one + std::string(9216, '\0')));
  EXPECT_TRUE(has_more(one + one));
  EXPECT_TRUE(has_more(one + std::string(9216, '\0') + one));
  EXPECT_TRUE(has_more(member("a", "1") + std::string(512, '\0') + "x"));
}

TEST(TarTest, LongNamesOfEveryKind) {
  const std::string name =
      std::string(90, 'd') + "/" + std::string(90, 'e') + "/" + std::string(200, 'f') + ".jpg";
  const std::string record = fmt::format("{} path={}\n", name.size() + 10, name);
  EXPECT_THAT(list(pax(record) + member("short", "x") + end_of_archive()),
              ElementsAre(name + "=x"));
  EXPECT_THAT(
      list(member("././@LongLink", name + '\0', 'L') + member("short", "x") + end_of_archive()),
      ElementsAre(name + "=x"));
  // The target of a link is not the name of a file.
  EXPECT_THAT(
      list(member("././@LongLink", name + '\0', 'K') + member("short", "x") + end_of_archive()),
      ElementsAre("short=x"));
  const RawHeader split = {.name = "b.jpg", .size = octal(0), .prefix = "deep/folder"};
  EXPECT_THAT(list(block(split) + end_of_archive()), ElementsAre("deep/folder/b.jpg="));
  // GNU keeps times in that place.
  RawHeader gnu = split;
  gnu.magic = std::string("ustar  \0", 8);
  EXPECT_THAT(list(block(gnu) + end_of_archive()), ElementsAre("b.jpg="));
  // An extended header is for one member only.
  EXPECT_THAT(list(pax(record) + member("a", "x") + member("b", "y") + end_of_archive()),
              ElementsAre(name + "=x", "b=y"));
}

TEST(TarTest, PaxSizeOverridesTheHeaders) {
  const std::string content(600, 'z');
  const std::string bytes = pax("19 mtime=1.5000000\n12 size=600\n") +
                            block({.name = "a", .size = octal(0)}) + padded(content);
  EXPECT_THAT(list(bytes + end_of_archive()), ElementsAre("a=" + content));
}

std::string base256(std::initializer_list<uint8_t> last, uint8_t first = 0x80) {
  std::string field(12, '\0');
  field[0] = static_cast<char>(first);
  std::ranges::copy(last, field.end() - static_cast<std::ptrdiff_t>(last.size()));
  return field;
}

TEST(TarTest, SizesInBase256) {
  const std::string content(600, 'z');
  EXPECT_THAT(list(block({.name = "a", .size = base256({0x02, 0x58})}) + padded(content) +
                   end_of_archive()),
              ElementsAre("a=" + content));
  EXPECT_THAT(reading_error(block({.size = base256({0xff, 0xff}, 0xff)}) + end_of_archive()),
              AllOf(StartsWith("x.tar: at byte 0: "), HasSubstr("a size that is negative")));
  EXPECT_THAT(
      reading_error(block({.size = base256({1, 0, 0, 0, 0, 0, 0, 0, 0})}) + end_of_archive()),
      HasSubstr("over 2^63"));
  EXPECT_THAT(reading_error(block({.size = base256({0x7f, 255, 255, 255, 255, 255, 255, 255})}) +
                            end_of_archive()),
              HasSubstr("truncated"));
}

TEST(TarTest, SizesThatAreNone) {
  const std::string end = end_of_archive();
  EXPECT_THAT(reading_error(block({.size = "-0000000001"}) + end), HasSubstr("negative"));
  EXPECT_THAT(reading_error(block({.size = "0000000000x"}) + end), HasSubstr("no octal number"));
  EXPECT_THAT(reading_error(pax("11 size=-1\n") + member("a", "") + end),
              HasSubstr("the size '-1'"));
  EXPECT_THAT(reading_error(pax("29 size=18446744073709551616\n") + member("a", "") + end),
              HasSubstr("below 2^63"));
  EXPECT_THAT(reading_error(pax("28 size=9223372036854775807\n") + member("a", "") + end),
              HasSubstr("truncated: 'a' has 9223372036854775807 bytes"));
}

TEST(TarTest, NamesThatLeadOutAreRefused) {
  const std::string end = end_of_archive();
  for (const std::string name : {"../a.jpg", "a/../b.jpg", "a/..", ".."}) {
    EXPECT_THAT(reading_error(member("ok", "1") + member(name, "x") + end),
                AllOf(StartsWith("x.tar: at byte 1024: "), HasSubstr(name), HasSubstr("'..'")));
  }
  EXPECT_THAT(reading_error(member("/etc/passwd", "x") + end), HasSubstr("is absolute"));
  EXPECT_THAT(reading_error(member("", "x") + end), HasSubstr("is empty"));
  EXPECT_THAT(reading_error(pax("18 path=../../etc\n") + member("a", "x") + end),
              HasSubstr("'..'"));
  EXPECT_THAT(reading_error(member("L", "/abs", 'L') + member("a", "x") + end),
              HasSubstr("absolute"));
  EXPECT_THAT(reading_error(pax(std::string("12 path=a\0b\n", 12)) + member("a", "x") + end),
              HasSubstr("NUL"));
  EXPECT_THAT(list(member("..a/b..c/...", "x") + end), ElementsAre("..a/b..c/...=x"));
}

TEST(TarTest, SparseAndUnknownMembersAreRefused) {
  const std::string end = end_of_archive();
  EXPECT_THAT(reading_error(member("a", "", 'S') + end), HasSubstr("sparse"));
  EXPECT_THAT(reading_error(pax("22 GNU.sparse.major=1\n") + member("a", "") + end),
              HasSubstr("sparse"));
  EXPECT_THAT(reading_error(member("a", "", 'M') + end), HasSubstr("unknown type 0x4d"));
  EXPECT_THAT(reading_error(member("a", "x", '1') + end), HasSubstr("hard link"));
}

TEST(TarTest, DamagedPaxHeaders) {
  for (const std::string records :
       {"", "x", "5", "9999 path=a\n", "3 a\n", "0 path=a\n", "-9 path=a\n", "9 path=ab\n",
        "10 path=abc", "8 pathab\n", "18446744073709551624 path=a\n"}) {
    if (records.empty()) continue;
    EXPECT_THAT(reading_error(pax(records) + member("a", "") + end_of_archive()),
                HasSubstr("damaged PAX header"))
        << records;
  }
  EXPECT_THAT(reading_error(member("x", std::string(2 << 20, ' '), 'x')),
              HasSubstr("at most 1048576"));
  EXPECT_THAT(reading_error(member("x", std::string(1 << 17, 'n'), 'L')),
              HasSubstr("at most 65536"));
  EXPECT_THAT(reading_error(member("g", "10 path=a\n", 'g')), HasSubstr("global"));
  EXPECT_THAT(reading_error(pax("10 path=a\n") + end_of_archive()),
              HasSubstr("without its member"));
}

TEST(TarTest, TruncationAnywhereIsAnError) {
  const std::string whole = pax("10 path=a\n") + member("x", std::string(700, 'x')) +
                            member("b", "y") + std::string(512, '\0');
  EXPECT_THAT(list(whole), ElementsAre("a=" + std::string(700, 'x'), "b=y"));
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_THAT(reading_error(whole.substr(0, size)), HasSubstr("truncated")) << size;
  }
}

TEST(TarTest, WhatIsNoTarIsSaid) {
  std::string bytes = member("a", "1") + end_of_archive();
  bytes[0] = 'b';
  EXPECT_THAT(reading_error(bytes), HasSubstr("checksum"));
  EXPECT_THAT(reading_error(std::string(2000, 'x')), HasSubstr("no tar archive"));
  EXPECT_THAT(reading_error("\x1f\x8b" + std::string(2000, 'x')), HasSubstr("compressed"));
}

TEST(TarWriterTest, WhatIsWrittenIsReadBack) {
  std::string bytes;
  TarWriter writer([&](std::span<const std::byte> more) {
    bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
  });
  const std::vector<std::string> names = {"a.jpg",
                                          std::string(100, 'n'),
                                          std::string(101, 'n'),
                                          std::string(150, 'p') + "/" + std::string(99, 'q'),
                                          "é/ü.png",
                                          std::string(3000, 'z')};
  std::vector<std::string> expected;
  for (const std::string& name : names) {
    const std::string content = "content of " + name;
    const int64_t offset =
        writer.add(name, {reinterpret_cast<const uint8_t*>(content.data()), content.size()});
    EXPECT_EQ(bytes.substr(static_cast<size_t>(offset), content.size()), content);
    expected.push_back(name + "=" + content);
  }
  writer.finish();
  EXPECT_EQ(writer.size(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(list(bytes), expected);
  EXPECT_THROW(writer.add("../a", {}), Error);
}

}  // namespace
}  // namespace brim::data
