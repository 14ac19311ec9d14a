// Shards as a source of images: order, labels, and what happens when files change under the reader.
#include "framework/data/sources/webdataset.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>
#include <thread>

#include "framework/base/error.h"
#include "framework/data/shards/shard_list.h"
#include "framework/recipe/document.h"
#include "framework/recipe/read.h"
#include "tests/data/tar_support.h"
#include "tests/support/error_of.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ShardListTest, BracesAreExpanded) {
  EXPECT_THAT(expand_braces("a.tar"), ElementsAre("a.tar"));
  EXPECT_THAT(expand_braces("s-{08..11}.tar"),
              ElementsAre("s-08.tar", "s-09.tar", "s-10.tar", "s-11.tar"));
  EXPECT_THAT(expand_braces("s-{8..10}"), ElementsAre("s-8", "s-9", "s-10"));
  EXPECT_THAT(expand_braces("{a,b}/{0..1}.tar"),
              ElementsAre("a/0.tar", "a/1.tar", "b/0.tar", "b/1.tar"));
  for (const std::string bad : {"{", "}", "a{0..1", "{{0..1}}", "{0}", "{3..1}", "{0..x}",
                                "{0..9999999}", "{0..9999}{0..9999}", "{}"}) {
    EXPECT_THAT(error_of(Exit::kRecipe, [&] { expand_braces(bad); }), HasSubstr("expected")) << bad;
  }
}

class WebDataset : public ::testing::Test {
 protected:
  WebDataset() {
    std::string name = (fs::temp_directory_path() / "brim_shards_XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~WebDataset() override { fs::remove_all(folder); }

  /// A shard with `count` samples named "n0", "n1", …; its images hold 600 times their own number.
  fs::path shard(const std::string& name, int first, int count) {
    std::string bytes;
    for (int i = first; i < first + count; ++i) {
      bytes += member(fmt::format("n{}.jpg", i), std::string(600, static_cast<char>(i)));
      bytes += member(fmt::format("n{}.cls", i), std::to_string(i % 10));
    }
    save(folder / name, bytes + end_of_archive());
    return folder / name;
  }

  std::unique_ptr<EncodedImages> open(const std::string& pattern,
                                      std::optional<int64_t> classes = {}) {
    return open_shards(pattern, classes, {folder / "cache"});
  }

  static std::string read(const EncodedImages& images, int64_t index) {
    std::vector<uint8_t> buffer;
    const auto bytes = images.bytes(index, buffer);
    return {bytes.begin(), bytes.end()};
  }

  fs::path folder;
};

TEST_F(WebDataset, AFolderIsReadInOrderOfItsShards) {
  shard("b.tar", 3, 2);
  shard("a.tar", 0, 3);
  shard("ignored.tgz", 9, 1);
  save(folder / "c.tar", end_of_archive());
  ::testing::internal::CaptureStderr();
  const auto images = open(folder);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("c.tar: holds no samples"));
  ASSERT_EQ(images->size(), 5);
  EXPECT_THAT(images->shard_ends(), ElementsAre(3, 5));
  EXPECT_EQ(images->class_names().size(), 5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(read(*images, i), std::string(600, static_cast<char>(i)));
    EXPECT_EQ(images->label(i), i);
  }
  EXPECT_EQ(images->name(3), (folder / "b.tar").string() + ": n3.jpg");
}

TEST_F(WebDataset, OneTarAndPatterns) {
  shard("s-0.tar", 0, 2);
  shard("s-1.tar", 2, 2);
  shard("s-2.tar", 4, 2);
  EXPECT_EQ(open(folder / "s-1.tar")->size(), 2);
  const auto images = open(folder / "s-{0..1}.tar");
  EXPECT_THAT(images->shard_ends(), ElementsAre(2, 4));
  EXPECT_THAT(error_of(Exit::kData, [&] { open(folder / "s-{2..3}.tar"); }), HasSubstr("s-3.tar"));
  EXPECT_THAT(error_of(Exit::kData, [&] { open(folder / "none"); }), HasSubstr("none"));
}

TEST_F(WebDataset, AnImageWithoutBytesIsNamedWithoutReadingSamples) {
  shard("a.tar", 0, 3);
  EXPECT_EQ(error_of(Exit::kData, [&] { open(folder)->check_files(); }), "no error");
  save(folder / "b.tar", member("n3.jpg", "x") + member("n3.cls", "3") + member("n4.png", "") +
                             member("n4.cls", "4") + end_of_archive());
  EXPECT_THAT(error_of(Exit::kData, [&] { open(folder)->check_files(); }),
              StartsWith((folder / "b.tar").string() +
                         ": n4.png: expected an image, found an empty file. "));
}

TEST_F(WebDataset, WhatIsEmptyOrHasALabelTooManyIsRefused) {
  fs::create_directory(folder / "empty");
  EXPECT_THAT(error_of(Exit::kData, [&] { open(folder / "empty"); }), HasSubstr("found none"));
  save(folder / "e.tar", end_of_archive());
  EXPECT_THAT(error_of(Exit::kData, [&] { open(folder / "e.tar"); }),
              HasSubstr("expected samples, found none"));
  const fs::path path = shard("a.tar", 0, 5);
  EXPECT_EQ(open(path, 7)->class_names().size(), 7);
  EXPECT_THAT(error_of(Exit::kData, [&] { open(path, 3); }),
              AllOf(HasSubstr("a.tar: n3.jpg"), HasSubstr("from 0 to 2, found 3")));
}

TEST_F(WebDataset, AShardThatVanishesIsNamed) {
  const fs::path first = shard("a.tar", 0, 2);
  const fs::path second = shard("b.tar", 2, 2);
  const auto images = open(folder);
  EXPECT_EQ(read(*images, 0), std::string(600, '\0'));
  fs::remove(first);
  fs::remove(second);
  EXPECT_EQ(read(*images, 1), std::string(600, '\1'));  // open since the first read
  EXPECT_THAT(error_of(Exit::kData, [&] { read(*images, 2); }),
              AllOf(HasSubstr("b.tar"), HasSubstr("No such file")));
}

TEST_F(WebDataset, AShardThatIsCutShortIsNamedAndTheRestStaysReadable) {
  const fs::path first = shard("a.tar", 0, 2);
  const fs::path second = shard("b.tar", 2, 2);
  shard("c.tar", 4, 2);
  const auto images = open(folder);
  EXPECT_EQ(read(*images, 1), std::string(600, '\1'));
  fs::resize_file(first, 2300);  // between epochs: an open shard, in the second image
  fs::resize_file(second, 2300);
  EXPECT_EQ(read(*images, 0), std::string(600, '\0'));
  EXPECT_THAT(error_of(Exit::kData, [&] { read(*images, 1); }),
              AllOf(HasSubstr("a.tar"), HasSubstr("truncated")));
  EXPECT_THAT(error_of(Exit::kData, [&] { read(*images, 2); }),
              AllOf(HasSubstr("b.tar"), HasSubstr("truncated since it was indexed")));
  EXPECT_EQ(read(*images, 4), std::string(600, '\4'));
}

TEST_F(WebDataset, AShardThatWasReplacedIsNamed) {
  const fs::path path = shard("a.tar", 0, 2);
  const auto images = open(folder);
  const auto before = fs::last_write_time(path);
  shard("a.tar", 2, 2);
  fs::last_write_time(path, before + std::chrono::seconds(1));
  EXPECT_THAT(error_of(Exit::kData, [&] { read(*images, 0); }),
              AllOf(HasSubstr("a.tar"), HasSubstr("changed")));
}

TEST_F(WebDataset, EvaluationHasTheClassesOfTrainingWhoseShardsAreListedOnce) {
  WebDatasetConfig config;
  config.train = shard("train.tar", 0, 9);
  config.eval = shard("eval.tar", 0, 3);
  EXPECT_EQ(config.open_eval()->classes(), 9);
  config.open_train({});
  fs::remove(config.train);
  EXPECT_EQ(config.open_eval()->classes(), 9);
  config.train = shard("other.tar", 0, 4);
  EXPECT_EQ(config.open_eval()->classes(), 4);
  config.classes = 6;
  EXPECT_EQ(config.open_eval()->classes(), 6);
}

TEST_F(WebDataset, ManyShardsAreReadByManyThreadsWithFewFilesOpen) {
  for (int i = 0; i < 300; ++i) shard(fmt::format("{:03}.tar", i), i % 100, 1);
  const auto images = open(folder);
  ASSERT_EQ(images->size(), 300);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int start = 0; start < 4; ++start) {
    threads.emplace_back([&, start] {
      for (int i = 0; i < 600; ++i) {
        const int index = (i * 7 + start * 50) % 300;
        wrong += read(*images, index) != std::string(600, static_cast<char>(index % 100));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
  const auto open_files = std::distance(fs::directory_iterator("/proc/self/fd"), {});
  EXPECT_LT(open_files, 290);
}

struct Root : recipe::Config {
  WebDatasetConfig data;
  void fields(recipe::Fields& f) override { f.section("data", data, ""); }
};

TEST(WebDatasetConfigTest, AddressesStayAsTheyAreAndPathsBecomeAbsolute) {
  Root root;
  recipe::read(
      recipe::parse("[data]\n[data.train]\npath = \"https://host/a/../s-{0..3}.tar?x=//y\"\n"
                    "[data.eval]\npath = \"e/../s-{0..3}.tar\"",
                    "t"),
      root);
  EXPECT_EQ(root.data.train, "https://host/a/../s-{0..3}.tar?x=//y");
  EXPECT_EQ(root.data.eval, fs::current_path() / "s-{0..3}.tar");
}

}  // namespace
}  // namespace brim::data
