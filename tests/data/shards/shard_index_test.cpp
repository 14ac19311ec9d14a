// Which samples a shard holds, and that a stored index is only used for the shard it was made of.
#include "framework/data/shards/shard_index.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/data/shards/tar.h"
#include "tests/data/tar_support.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// "label name content" of each sample.
std::vector<std::string> samples(const ShardIndex& index, const std::string& bytes) {
  std::vector<std::string> result;
  for (int64_t i = 0; i < index.size(); ++i) {
    const ShardSample& sample = index.samples[static_cast<size_t>(i)];
    result.push_back(fmt::format("{} {} {}", sample.label, index.name(i),
                                 bytes.substr(sample.offset, sample.bytes)));
  }
  return result;
}

std::vector<std::string> samples(const std::string& members) {
  const Archive archive(members + end_of_archive());
  return samples(build_index(archive.source), archive.bytes);
}

std::string indexing_error(const std::string& members) {
  try {
    samples(members);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kData);
    return error.what();
  }
  return "no error";
}

TEST(ShardIndexTest, MembersOfOneKeyMakeASample) {
  EXPECT_THAT(samples(member("a.jpg", "A") + member("a.cls", "3") + member("b.cls", " 12\n") +
                      member("b.x.txt", "?") + member("b.PNG", "B") + member("d.e/c.jpeg", "C") +
                      member("d.e/c.cls", "0")),
              ElementsAre("3 a.jpg A", "12 b.PNG B", "0 d.e/c.jpeg C"));
}

TEST(ShardIndexTest, OtherFilesArePassedOver) {
  const Archive archive(member("__meta__", "?") + member("__m__/a.jpg", "?") +
                        member("README", "?") + member("notes.txt", "?") + member("a.jpg", "A") +
                        member("._a.jpg", "?") + member("a.cls", "3") + member("a.seg.jpg", "?") +
                        member("l", "", '2') + end_of_archive());
  const ShardIndex index = build_index(archive.source);
  EXPECT_THAT(samples(index, archive.bytes), ElementsAre("3 a.jpg A"));
  EXPECT_EQ(index.passed_over, 6);
}

TEST(ShardIndexTest, HalfSamplesAndDoubleOnesAreRefused) {
  EXPECT_THAT(indexing_error(member("a.jpg", "A") + member("b.jpg", "B") + member("b.cls", "1")),
              AllOf(HasSubstr("x.tar: at byte 0: "), HasSubstr("'a' has no label")));
  EXPECT_THAT(indexing_error(member("a.cls", "1")), HasSubstr("'a' has no image"));
  EXPECT_THAT(indexing_error(member("a.jpg", "A") + member("b.cls", "1") + member("a.cls", "1")),
              HasSubstr("follow each other"));
  EXPECT_THAT(indexing_error(member("a.jpg", "A") + member("a.png", "B")), HasSubstr("one image"));
  EXPECT_THAT(indexing_error(member("a.cls", "1") + member("a.cls", "1")), HasSubstr("one label"));
}

TEST(ShardIndexTest, LabelsAreWholeNumbers) {
  for (const std::string label : {"", " ", "-1", "1.5", "x", "1 2", "16777216", "99999999999",
                                  "0000000000000000000000000000000000000000000000000000000000000000"
                                  "0"}) {
    EXPECT_THAT(indexing_error(member("a.jpg", "A") + member("a.cls", label)),
                HasSubstr("expected a label from 0 to 16777215"))
        << label;
  }
  EXPECT_THAT(samples(member("a.jpg", "A") + member("a.cls", "16777215")),
              ElementsAre("16777215 a.jpg A"));
}

TEST(ShardIndexTest, PrintedIsReadBackAndDamageIsRefused) {
  const Archive archive(member("a.jpg", "A") + member("a.cls", "3") + member("b.jpg", "BB") +
                        member("b.cls", "4") + end_of_archive());
  ShardIndex index = build_index(archive.source);
  index.shard_modified_ns = 77;
  const std::string printed = print_index(index);
  const ShardIndex again = parse_index(printed, "i");
  EXPECT_EQ(samples(again, archive.bytes), samples(index, archive.bytes));
  EXPECT_EQ(again.shard_modified_ns, 77);
  EXPECT_EQ(again.shard_bytes, archive.source.size());
  for (size_t i = 0; i < printed.size(); ++i) {
    std::string damaged = printed;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(parse_index(damaged, "i"), Error) << i;
    EXPECT_THROW(parse_index(printed.substr(0, i), "i"), Error) << i;
  }
}

TEST(ShardIndexTest, AnIndexThatPointsOutsideItsShardIsRefused) {
  const auto error_for = [](const ShardIndex& index) -> std::string {
    try {
      parse_index(print_index(index), "i");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const ShardIndex good = {100, 0, {{10, 90, 1}}, "n", {1}};
  EXPECT_EQ(error_for(good), "no error");
  ShardIndex bad = good;
  bad.samples[0].bytes = 91;
  EXPECT_THAT(error_for(bad), HasSubstr("outside"));
  bad = good;
  bad.samples[0].offset = UINT64_MAX;
  EXPECT_THAT(error_for(bad), HasSubstr("outside"));
  bad = good;
  bad.samples[0].label = 1 << 24;
  EXPECT_THAT(error_for(bad), HasSubstr("label"));
  bad = good;
  bad.name_ends[0] = 2;
  EXPECT_THAT(error_for(bad), HasSubstr("names"));
  bad = good;
  bad.shard_bytes = -1;
  EXPECT_THAT(error_for(bad), HasSubstr("sizes"));
}

class StoredIndex : public ::testing::Test {
 protected:
  StoredIndex() {
    std::string name = (fs::temp_directory_path() / "brim_index_XXXXXX").string();
    folder = ::mkdtemp(name.data());
    shard = folder / "s.tar";
    save(shard, one);
  }
  ~StoredIndex() override { fs::remove_all(folder); }

  std::string opened() const { return samples(open_index(shard), one).at(0); }

  const std::string one = member("a.jpg", "A") + member("a.cls", "3") + end_of_archive();
  const std::string two = member("a.jpg", "A") + member("a.cls", "4") + end_of_archive();
  fs::path folder;
  fs::path shard;
};

TEST_F(StoredIndex, IsUsedAsLongAsItFits) {
  EXPECT_EQ(opened(), "3 a.jpg A");
  ASSERT_TRUE(fs::exists(index_path(shard)));
  // An index that says something else shows that it is read.
  ShardIndex other = open_index(shard);
  other.samples[0].label = 9;
  store_index(shard, other);
  EXPECT_EQ(opened(), "9 a.jpg A");
}

TEST_F(StoredIndex, IsMadeAnewWhereTheShardChanged) {
  opened();
  const auto before = fs::last_write_time(shard);
  save(shard, two);  // the same size
  fs::last_write_time(shard, before + std::chrono::seconds(1));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(opened(), "4 a.jpg A");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("stale"));
  save(shard, one + std::string(512, '\0'));  // the same time
  fs::last_write_time(shard, before + std::chrono::seconds(1));
  EXPECT_EQ(opened(), "3 a.jpg A");
}

TEST_F(StoredIndex, IsMadeAnewWhereItIsDamaged) {
  opened();
  save(index_path(shard), "not an index");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(opened(), "3 a.jpg A");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("damaged index"));
  EXPECT_EQ(parse_index(read_file(index_path(shard), Exit::kData, 10'000), "i").size(), 1);
}

TEST_F(StoredIndex, IsDoneWithoutWhereItCannotBeWritten) {
  fs::create_directory(index_path(shard));  // root may write to any folder, but not over one
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(opened(), "3 a.jpg A");
  EXPECT_EQ(opened(), "3 a.jpg A");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("kept in memory"));
  EXPECT_EQ(said.find("kept in memory"), said.rfind("kept in memory"));  // once
}

TEST_F(StoredIndex, ShardsThatAreMissingOrNoFilesAreNamed) {
  for (const fs::path& path : {folder / "missing.tar", folder}) {
    try {
      open_index(path);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
}

}  // namespace
}  // namespace brim::data
