// Images to shards: every image once, in the same shards whatever the threads, and a pack that was
// stopped continues where it was.
#include "framework/data/shards/pack.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>
#include <set>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/data/image/image.h"
#include "framework/data/image/jpeg_encode.h"
#include "framework/data/shards/inspect.h"
#include "framework/data/shards/shard_index.h"
#include "framework/data/shards/tar.h"
#include "framework/data/sources/webdataset.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Gray images, the number i its colour and label i / 10; every one is a file of its own.
class FakeImages : public EncodedImages {
 public:
  explicit FakeImages(int64_t size, int64_t height = 20, int64_t width = 30) {
    for (int64_t i = 0; i < size; ++i) {
      Image image = {height, width, 3, {}};
      image.pixels.assign(static_cast<size_t>(height * width * 3), static_cast<uint8_t>(i));
      files.push_back(encode_jpeg(image, 90, "x"));
    }
  }
  int64_t size() const override { return static_cast<int64_t>(files.size()); }
  std::vector<std::string> class_names() const override { return {"a", "b", "c", "d"}; }
  std::string name(int64_t index) const override { return fmt::format("folder/{}.jpg", index); }
  int64_t label(int64_t index) const override { return index / 10; }
  std::span<const uint8_t> bytes(int64_t index, std::vector<uint8_t>&) const override {
    ++reads;
    return files[static_cast<size_t>(index)];
  }

  std::vector<std::vector<uint8_t>> files;
  mutable std::atomic<int64_t> reads = 0;
};

class PackTest : public ::testing::Test {
 protected:
  PackTest() {
    std::string name = (fs::temp_directory_path() / "brim_pack_XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~PackTest() override { fs::remove_all(folder); }

  std::string content(const std::string& name) const {
    return read_file(folder / name, Exit::kData, 1 << 30);
  }

  std::string error_of(const EncodedImages& images, const PackOptions& options) const {
    try {
      pack(images, folder, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      return error.what();
    }
    return "no error";
  }

  fs::path folder;
};

TEST_F(PackTest, EveryImageIsInOneShardWithItsLabelAndClassesAreMixed) {
  const FakeImages images(40);
  const PackProgress done = pack(images, folder, {.samples = 16, .seed = 3});
  EXPECT_EQ(done.shards, 3);
  EXPECT_EQ(done.done, 40);
  const auto packed = open_shards(folder, {}, {});
  EXPECT_THAT(packed->shard_ends(), ElementsAre(16, 32, 40));
  std::set<std::vector<uint8_t>> seen;
  std::set<int64_t> labels_of_first_shard;
  std::vector<uint8_t> buffer;
  for (int64_t i = 0; i < packed->size(); ++i) {
    const auto bytes = packed->bytes(i, buffer);
    const std::vector<uint8_t> file(bytes.begin(), bytes.end());
    const auto found = std::ranges::find(images.files, file);
    ASSERT_NE(found, images.files.end());
    EXPECT_EQ(packed->label(i), (found - images.files.begin()) / 10);
    EXPECT_THAT(packed->name(i), HasSubstr(fmt::format(": {:08}.jpg", i)));
    seen.insert(file);
    if (i < 16) labels_of_first_shard.insert(packed->label(i));
  }
  EXPECT_EQ(seen.size(), 40);
  EXPECT_EQ(labels_of_first_shard.size(), 4);
}

TEST_F(PackTest, ShardsKeepTheNamesOfTheirClasses) {
  pack(FakeImages(40), folder, {.samples = 16});
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  EXPECT_EQ(open_shards(folder.string(), {}, {})->class_names(), names);
  EXPECT_EQ(open_shards((folder / "shard-{000000..000002}.tar").string(), {}, {})->class_names(),
            names);
  EXPECT_EQ(open_shards(folder.string(), 5, {})->class_names().back(), "4");
  for (const char* other :
       {"no JSON", "[]", R"({"classes": [1, 2, 3, 4]})", R"({"classes": {}})"}) {
    write_file(folder / "pack.json", other);
    EXPECT_EQ(open_shards(folder.string(), {}, {})->class_names().front(), "0") << other;
  }
}

TEST_F(PackTest, TheStoredIndexIsTheOneThatTheShardHas) {
  pack(FakeImages(5), folder, {});
  const fs::path shard = folder / "shard-000000.tar";
  const FileBytes file(shard);
  ShardIndex made = build_index(file);
  made.shard_modified_ns = file.modified_ns();
  EXPECT_EQ(content("shard-000000.tar.index"), print_index(made));
}

TEST_F(PackTest, ThreadsChangeNothingAndTheSeedChangesTheOrder) {
  const FakeImages images(30);
  pack(images, folder, {.samples = 8, .resize = 10, .threads = 1});
  const std::string one = content("shard-000001.tar");
  for (const auto& [seed, threads] : {std::pair(0, 4), std::pair(1, 1)}) {
    fs::remove_all(folder);
    pack(images, folder,
         {.samples = 8, .resize = 10, .seed = static_cast<uint64_t>(seed), .threads = threads});
    EXPECT_EQ(content("shard-000001.tar") == one, seed == 0);
  }
}

TEST_F(PackTest, WhatIsWholeIsKeptAndTheRestIsWritten) {
  const FakeImages images(40);
  const PackOptions options = {.samples = 10};
  pack(images, folder, options);
  std::vector<std::string> whole;
  for (int i = 0; i < 4; ++i) whole.push_back(content(fmt::format("shard-00000{}.tar", i)));
  // Stopped before the last, the index of the first not yet written, the third lost and the second
  // that of another order: the same names, other labels.
  fs::remove(folder / "shard-000003.tar");
  fs::remove(folder / "shard-000000.tar.index");
  pack(images, folder / "other", {.samples = 10, .seed = 1});
  fs::rename(folder / "other/shard-000001.tar", folder / "shard-000001.tar");
  fs::remove(folder / "shard-000002.tar");
  images.reads = 0;
  const PackProgress again = pack(images, folder, options);
  EXPECT_EQ(again.kept_shards, 1);
  EXPECT_EQ(again.shards, 4);
  EXPECT_EQ(images.reads, 30);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(content(fmt::format("shard-00000{}.tar", i)), whole[static_cast<size_t>(i)]);
  }
  images.reads = 0;
  EXPECT_EQ(pack(images, folder, options).kept_shards, 4);
  EXPECT_EQ(images.reads, 0);
}

TEST_F(PackTest, WhatAKilledPackLeftIsRemovedByTheNext) {
  const FakeImages images(20);
  pack(images, folder, {.samples = 10});
  fs::remove(folder / "shard-000001.tar");
  write_file(folder / "shard-000001.tar.tmp.4194304", "half a shard");
  write_file(folder / "mine.tmp.4194304", "");
  EXPECT_EQ(pack(images, folder, {.samples = 10}).kept_shards, 1);
  EXPECT_FALSE(fs::exists(folder / "shard-000001.tar.tmp.4194304"));
  EXPECT_TRUE(fs::exists(folder / "mine.tmp.4194304"));
}

TEST_F(PackTest, ADamagedShardIsWrittenAnew) {
  const FakeImages images(10);
  pack(images, folder, {});
  const std::string whole = content("shard-000000.tar");
  fs::resize_file(folder / "shard-000000.tar", 1500);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(pack(images, folder, {}).kept_shards, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("written again"));
  EXPECT_EQ(content("shard-000000.tar"), whole);
}

TEST_F(PackTest, AShardIsClosedAtItsBytes) {
  const FakeImages images(40);
  pack(images, folder, {.samples = 1000, .shard_bytes = 10'000});
  const auto packed = open_shards(folder, {}, {});
  EXPECT_EQ(packed->size(), 40);
  EXPECT_GT(packed->shard_ends().size(), 4);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".tar") {
      EXPECT_LT(fs::file_size(entry), 10'000 + 4096);
    }
  }
  images.reads = 0;
  pack(images, folder, {.samples = 1000, .shard_bytes = 10'000});
  EXPECT_EQ(images.reads, 0);
}

TEST_F(PackTest, OtherImagesOrOptionsNeedAnotherFolder) {
  const FakeImages images(10);
  pack(images, folder, {});
  EXPECT_THAT(error_of(images, {.samples = 9}), HasSubstr("other options"));
  EXPECT_THAT(error_of(images, {.seed = 1}), HasSubstr("other options"));
  EXPECT_THAT(error_of(FakeImages(11), {}), HasSubstr("other images"));
  fs::remove(folder / "pack.json");
  EXPECT_THAT(error_of(images, {}), HasSubstr("expected no shards"));
}

TEST_F(PackTest, LargeImagesAreMadeSmallerAndSmallOnesStay) {
  FakeImages images(4, 40, 61);
  const FakeImages small(1, 16, 100);
  images.files.push_back(small.files[0]);
  pack(images, folder, {.resize = 16, .quality = 80});
  const auto packed = open_shards(folder, {}, {});
  std::vector<uint8_t> buffer;
  int64_t resized = 0;
  for (int64_t i = 0; i < packed->size(); ++i) {
    const auto bytes = packed->bytes(i, buffer);
    const Image image = decode_image(bytes, "x");
    EXPECT_EQ(image.height, 16);
    if (image.width == 100) {
      EXPECT_TRUE(std::ranges::equal(bytes, small.files[0]));
    } else {
      EXPECT_EQ(image.width, 24);
      ++resized;
    }
  }
  EXPECT_EQ(resized, 4);
}

TEST_F(PackTest, WhatIsNoImageIsNamedAndLeavesNoHalfShard) {
  FakeImages images(10);
  images.files[7] = {'G', 'I', 'F', '8'};
  EXPECT_THAT(error_of(images, {.threads = 2}),
              AllOf(StartsWith("folder/7.jpg"), HasSubstr("JPEG or PNG")));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ElementsAre("pack.json"));
}

TEST(InspectTest, CountsSizesAndBrokenImages) {
  FakeImages images(30);
  images.files[3].resize(images.files[3].size() / 2);
  images.files[21].clear();
  for (const int64_t threads : {1, 4}) {
    const Inspection found = inspect(images, threads);
    EXPECT_EQ(found.images, 30);
    EXPECT_EQ(found.height.median, 20);
    EXPECT_EQ(found.width.greatest, 30);
    EXPECT_EQ(found.file_bytes.least, 0);
    ASSERT_EQ(found.classes.size(), 4);
    EXPECT_EQ(found.classes[1].images, 10);
    EXPECT_EQ(found.classes[3].images, 0);
    EXPECT_THAT(found.broken,
                ElementsAre(StartsWith("folder/3.jpg: "), StartsWith("folder/21.jpg: ")));
  }
}

}  // namespace
}  // namespace brim::data
