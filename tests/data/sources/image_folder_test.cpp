// Image folders: what is listed and what is refused, caches, and files that change while they are
// used.
#include "framework/data/sources/image_folder.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "framework/base/error.h"
#include "framework/data/loading/loader.h"
#include "tests/data/pictures.h"

namespace brim::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::StartsWith;

class ImageFolderTest : public ::testing::Test {
 protected:
  ImageFolderTest() {
    std::string name = (fs::temp_directory_path() / "brim_folder_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~ImageFolderTest() override { fs::remove_all(root_); }

  void put(const std::string& path, const Bytes& bytes) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  }
  ImageFolderConfig config() const {
    ImageFolderConfig result;
    result.train = root_ / "train";
    result.options.image_size = 16;
    result.options.resize = 18;
    return result;
  }
  std::string error() const {
    try {
      config().open_train({});
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      std::string text = error.what();
      EXPECT_THAT(text, StartsWith(root_.string() + "/"));
      return text.substr(root_.string().size() + 1);
    }
    return "no error";
  }
  /// What is said of the evaluation data in eval/.
  std::string eval_error() const {
    ImageFolderConfig both = config();
    both.eval = root_ / "eval";
    try {
      both.open_eval();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path root_;
};

TEST_F(ImageFolderTest, ClassesAreFoldersAndSamplesAreFilesInOrder) {
  put("train/dog/b.PNG", png(20, 30));
  put("train/dog/a.jpeg", jpeg(20, 30));
  put("train/dog/notes.txt", {});
  put("train/cat/deep/er/z.jpg", jpeg(30, 20));
  put("train/README", {});
  const auto dataset = config().open_train({});
  EXPECT_THAT(dataset->images()->class_names(), ElementsAre("cat", "dog"));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->name(0), EndsWith("train/cat/deep/er/z.jpg"));
  EXPECT_THAT(dataset->name(1), EndsWith("train/dog/a.jpeg"));
  EXPECT_THAT(dataset->name(2), EndsWith("train/dog/b.PNG"));
  EXPECT_EQ(dataset->images()->shape(), (ImageShape{16, 16, 3}));
  Bytes pixels(16 * 16 * 3);
  EXPECT_EQ(dataset->read(0, nullptr, pixels), 0);
  EXPECT_EQ(dataset->read(2, nullptr, pixels), 1);
  EXPECT_EQ(config().open_eval(), nullptr);
}

TEST_F(ImageFolderTest, SaysWhatIsMissing) {
  EXPECT_EQ(error(), "train: cannot read the folder: No such file or directory");
  put("train/README", {});
  EXPECT_EQ(error(), "train: expected a folder for each class, found none");
  put("train/cat/a.jpg", {});
  put("train/cow/a.txt", {});
  EXPECT_EQ(error(), "train: found no .jpg, .jpeg, .png files in the class folder cow");
  put("train/dog/deep/a.txt", {});
  EXPECT_EQ(error(), "train: found no .jpg, .jpeg, .png files in the class folders cow, dog");
}

TEST_F(ImageFolderTest, HiddenNamesArePassedOver) {
  put("train/cat/a.jpg", jpeg(20, 30));
  put("train/cat/._a.jpg", {});
  put("train/cat/.cache/b.jpg", {});
  put("train/.ipynb_checkpoints/notes", {});
  const auto dataset = config().open_train({});
  EXPECT_THAT(dataset->images()->class_names(), ElementsAre("cat"));
  EXPECT_EQ(dataset->size(), 1);
}

TEST_F(ImageFolderTest, ImagesOfOtherFormatsAreCounted) {
  put("train/cat/a.jpg", jpeg(20, 30));
  put("train/cat/b.BMP", {});
  put("train/dog/deep/c.webp", {});
  put("train/dog/d.png", png(20, 30));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(config().open_train({})->size(), 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              ::testing::HasSubstr("train: 2 image files left out: by name neither JPEG nor PNG"));
  EXPECT_THAT(said, ::testing::HasSubstr("Convert them to PNG"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  fs::remove(root_ / "train/cat/b.BMP");
  ::testing::internal::CaptureStderr();
  config().open_train({});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("train: 1 image file left out: by name neither JPEG nor PNG "
                                   "(such as .bmp, .webp). Convert it to PNG"));
}

TEST_F(ImageFolderTest, ImagesBesideTheClassFoldersAreNamed) {
  put("train/cat/a.jpg", jpeg(20, 30));
  put("train/b.jpg", jpeg(20, 30));
  put("train/notes.txt", {});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(config().open_train({})->size(), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("train: 1 image file left out: beside the class folders"));
}

TEST_F(ImageFolderTest, SplitsAreNoClasses) {
  put("train/train/cat/a.jpg", jpeg(20, 30));
  put("train/val/cat/b.jpg", jpeg(20, 30));
  EXPECT_EQ(error(), "train: expected a folder for each class, found the splits train, val. Use " +
                         (root_ / "train/train").string() +
                         " as data.train.path, and another split as data.eval.path");
  put("train/plane/a.jpg", jpeg(20, 30));
  EXPECT_EQ(error(), "no error");
}

TEST_F(ImageFolderTest, LoopsOfLinksAreHarmlessAndOtherLinksAreFollowed) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("train/dog/c.jpg", jpeg(20, 20));
  put("elsewhere/b.jpg", jpeg(20, 20));
  fs::create_directory_symlink(root_ / "train", root_ / "train/cat/up");
  fs::create_directory_symlink("../..", root_ / "train/dog/further_up");
  fs::create_directory_symlink(root_ / "train/cat", root_ / "train/cat/self");
  fs::create_directory_symlink(root_ / "elsewhere", root_ / "train/cat/there");
  fs::create_directory_symlink(root_ / "nowhere", root_ / "train/dangling");
  const auto dataset = config().open_train({});
  EXPECT_THAT(dataset->images()->class_names(), ElementsAre("cat", "dog"));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->name(1), EndsWith("train/cat/there/b.jpg"));
  EXPECT_THAT(dataset->name(2), EndsWith("train/dog/c.jpg"));
}

std::string check_error(const Dataset& dataset) {
  try {
    dataset.check_files();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kData);
    return error.what();
  }
  return "no error";
}

TEST_F(ImageFolderTest, TheFirstEmptyFileIsNamedWithoutReadingSamples) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("train/dog/a.jpg", {1});  // no image, but not empty
  put("train/dog/b.jpg", {1});
  EXPECT_EQ(check_error(*config().open_train({})), "no error");
  for (const char* name : {"train/dog/b.jpg", "train/cat/b.jpg"}) {
    put(name, {});
    EXPECT_EQ(check_error(*config().open_train({})),
              (root_ / name).string() +
                  ": expected an image, found an empty file. Replace or remove it, or set "
                  "data.on_error = \"skip\"");
  }
  const auto dataset = config().open_train({});
  fs::remove(root_ / "train/cat/a.jpg");
  EXPECT_EQ(check_error(*dataset),
            (root_ / "train/cat/a.jpg").string() + ": cannot read: No such file or directory");
}

TEST_F(ImageFolderTest, OfManyFilesSomeInAllPartsAndOneOfEachClassAreLookedAt) {
  put("train/a/x.jpg", {1});
  for (int i = 0; i < 3000; ++i) put(fmt::format("train/b/{:04}.jpg", i), {1});
  put("train/c/y.jpg", {1});  // after index 3000 of 3002: not among those that are spread
  const auto dataset = config().open_train({});
  EXPECT_EQ(check_error(*dataset), "no error");
  const auto empties_found = [&](const std::string& name) {
    put(name, {});
    const bool is_found = check_error(*dataset) != "no error";
    put(name, {1});
    return is_found;
  };
  EXPECT_TRUE(empties_found("train/c/y.jpg"));
  EXPECT_TRUE(empties_found("train/b/0000.jpg"));
  int64_t found = 0;
  for (int i = 1000; i < 1030; ++i) found += empties_found(fmt::format("train/b/{:04}.jpg", i));
  EXPECT_EQ(found, 10);  // one in three
}

TEST_F(ImageFolderTest, ABadFileIsNamedByTheLoader) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("train/cat/b.jpg", {});
  const auto dataset = config().open_train({});
  for (const int64_t workers : {0, 2}) {
    Loader loader(*dataset, {.global_batch = 1, .micro_batch = 1, .workers = workers});
    ASSERT_NE(loader.next(), nullptr);
    try {
      loader.next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_THAT(error.what(),
                  StartsWith(dataset->name(1) + ": expected an image, found an empty file. Set "));
    }
  }
}

/// Pixels of all samples over two epochs, augmented.
std::vector<Bytes> two_epochs(const Dataset& dataset) {
  std::vector<Bytes> result;
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t i = 0; i < dataset.size(); ++i) {
      RandomStream random(1, epoch, static_cast<uint64_t>(i));
      result.emplace_back(static_cast<size_t>(dataset.sample_bytes()));
      dataset.read(i, &random, result.back());
    }
  }
  return result;
}

TEST_F(ImageFolderTest, ACacheOfAnySizeChangesNothing) {
  for (int i = 0; i < 6; ++i) {
    put("train/cat/" + std::to_string(i) + (i % 2 == 0 ? ".jpg" : ".png"),
        i % 2 == 0 ? jpeg(40 + i, 50) : png(40 + i, 50));
  }
  const AugmentConfig augment = {.flip = true, .crop = Crop::kRandomResized};
  const auto expected = two_epochs(*config().open_train(augment));
  for (const CacheKind kind : {CacheKind::kEncoded, CacheKind::kDecoded}) {
    for (const double gib : {1e-9, 1e-5, 1.0}) {
      ImageFolderConfig cached = config();
      cached.options.cache = kind;
      cached.options.cache_gib = gib;
      EXPECT_EQ(two_epochs(*cached.open_train(augment)), expected);
    }
  }
}

TEST_F(ImageFolderTest, WhatIsInTheCacheIsNotReadAgain) {
  put("train/cat/a.jpg", jpeg(20, 20));
  for (const CacheKind kind : {CacheKind::kEncoded, CacheKind::kDecoded}) {
    put("train/cat/a.jpg", jpeg(20, 20));
    ImageFolderConfig cached = config();
    cached.options.cache = kind;
    const auto dataset = cached.open_train({});
    Bytes pixels(16 * 16 * 3);
    dataset->read(0, nullptr, pixels);
    fs::remove(root_ / "train/cat/a.jpg");
    EXPECT_EQ(dataset->read(0, nullptr, pixels), 0);
  }
}

TEST_F(ImageFolderTest, AFileThatVanishesOrShrinksBetweenEpochsIsNamedOrSkipped) {
  for (const bool vanishes : {true, false}) {
    for (int i = 0; i < 4; ++i) put("train/cat/" + std::to_string(i) + ".jpg", jpeg(20, 20));
    const auto dataset = config().open_train({});
    Loader failing(*dataset, {.global_batch = 4, .micro_batch = 4, .workers = 2, .prefetch = 0});
    Loader skipping(*dataset, {.global_batch = 4,
                               .micro_batch = 4,
                               .workers = 2,
                               .prefetch = 0,
                               .on_error = OnError::kReplace});
    ASSERT_NE(failing.next(), nullptr);
    ASSERT_NE(skipping.next(), nullptr);
    if (vanishes) {
      fs::remove(root_ / "train/cat/2.jpg");
    } else {
      fs::resize_file(root_ / "train/cat/2.jpg", 100);
    }
    const auto read_until_error = [&] {
      for (int i = 0; i < 3; ++i) failing.next();
    };
    try {
      read_until_error();
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Exit::kData);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("train/cat/2.jpg"));
    }
    for (int i = 0; i < 3; ++i) ASSERT_NE(skipping.next(), nullptr);
    EXPECT_EQ(skipping.skipped(), 1);
  }
}

TEST_F(ImageFolderTest, EvaluationHasTheClassesOfTraining) {
  put("train/cat/a.jpg", jpeg(20, 20));
  put("train/dog/a.jpg", jpeg(20, 20));
  put("eval/cat/a.jpg", jpeg(20, 20));
  put("eval/owl/a.jpg", jpeg(20, 20));
  EXPECT_THAT(eval_error(), EndsWith("missing: dog; unknown: owl"));
  fs::rename(root_ / "eval/owl", root_ / "eval/dog");
  ImageFolderConfig both = config();
  both.eval = root_ / "eval";
  EXPECT_EQ(both.open_eval()->size(), 2);
}

TEST_F(ImageFolderTest, ClassNamesThatOnlyLookTheSameAreToldApart) {
  put("train/r\u00f4se/a.jpg", jpeg(20, 20));
  put("train/cow/a.jpg", jpeg(20, 20));
  put("eval/ro\u0302se/a.jpg", jpeg(20, 20));
  put("eval/cow /a.jpg", jpeg(20, 20));
  EXPECT_THAT(eval_error(), EndsWith("missing: cow, r\u00f4se (\"r\\u00f4se\"); unknown: "
                                     "cow  (\"cow \"), ro\u0302se (\"ro\\u0302se\")"));
}

TEST_F(ImageFolderTest, ResizeBelowImageSizeIsRefused) {
  put("train/cat/a.jpg", jpeg(20, 20));
  ImageFolderConfig small = config();
  small.options.resize = 15;
  try {
    small.open_train({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_STREQ(error.what(),
                 "[data]: expected 'resize' to be at least image_size (16), found 15");
  }
}

}  // namespace
}  // namespace brim::data
