// CIFAR's binary files, good ones and each kind of bad one.
#include "framework/data/sources/cifar.h"

#include <gmock/gmock.h>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "tests/support/temporary_folder.h"

namespace brim::data {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A record whose red, green and blue at pixel i are i, i + 50 and i + 100, plus `shift`.
std::string record(std::initializer_list<int> labels, int shift = 0) {
  std::string bytes;
  for (const int label : labels) bytes += static_cast<char>(label);
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i + 50 * c + shift);
  }
  return bytes;
}

class CifarTest : public ::testing::Test {
 protected:
  CifarTest() { config_.path = folder_.path(); }

  void file(const std::string& name, const std::string& bytes) const {
    write_file(folder_.path() / name, bytes);
  }
  template <class Action>
  std::string message(Action action, Exit status = Exit::kData) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status);
      std::string text = error.what();
      const std::string prefix = folder_.path().string();
      const size_t at = text.find(prefix);
      return at == std::string::npos ? text : text.erase(at, prefix.size());
    }
    return "no error";
  }
  std::string train_error() const {
    return message([&] { config_.open_train({}); });
  }

  testing::TemporaryFolder folder_;
  CifarConfig config_;
};

TEST_F(CifarTest, ABatchInTheMiddleIsMissed) {
  file("data_batch_1.bin", record({3}));
  file("data_batch_3.bin", record({0}));
  file("test_batch.bin", record({7}));
  EXPECT_THAT(train_error(), HasSubstr("expected data_batch_2.bin beside data_batch_3.bin"));
}

TEST_F(CifarTest, ReadsCifar10) {
  file("data_batch_1.bin", record({3}) + record({9}, 1));
  file("data_batch_2.bin", record({0}, 2));
  file("test_batch.bin", record({7}));
  const auto dataset = config_.open_train({});
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->images()->shape(), (ImageShape{32, 32, 3}));
  EXPECT_EQ(dataset->classes(), 10);
  EXPECT_EQ(dataset->images()->class_names()[9], "9");
  EXPECT_THAT(dataset->name(2), EndsWith("data_batch_2.bin[0]"));
  std::vector<uint8_t> pixels(3072);
  for (int64_t sample = 0; sample < 3; ++sample) {
    EXPECT_EQ(dataset->read(sample, nullptr, pixels), dataset->label(sample));
    for (size_t i = 0; i < 3072; ++i) {
      ASSERT_EQ(pixels[i], static_cast<uint8_t>(i / 3 + 50 * (i % 3) + sample)) << i;
    }
  }
  EXPECT_EQ(dataset->label(0), 3);
  EXPECT_EQ(dataset->label(1), 9);
  const auto eval = config_.open_eval();
  ASSERT_EQ(eval->size(), 1);
  EXPECT_EQ(eval->label(0), 7);
  // Names, where there are some, as the real file has them: with an empty line at the end.
  file("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\ntruck\n\n");
  EXPECT_EQ(config_.open_eval()->images()->class_names()[9], "truck");
  EXPECT_EQ(config_.open_train({})->images()->class_names()[0], "a");
}

TEST_F(CifarTest, FewerFilesThanThereAreOfItAreSaid) {
  for (const int number : {1, 2, 3, 4}) {
    file("data_batch_" + std::to_string(number) + ".bin", record({3}));
  }
  ::testing::internal::CaptureStderr();
  ASSERT_NE(config_.open_train({}), nullptr);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("4 of CIFAR-10's 5 files"));
  file("data_batch_5.bin", record({3}));
  ::testing::internal::CaptureStderr();
  ASSERT_NE(config_.open_train({}), nullptr);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(CifarTest, EvaluationNeedsItsFileAlone) {
  file("test_batch.bin", record({7}));
  EXPECT_EQ(config_.open_eval()->size(), 1);
  EXPECT_THAT(train_error(), HasSubstr("expected data_batch_1.bin, found test_batch.bin alone"));
  file("test.bin", record({1, 7}));
  EXPECT_THAT(train_error(), HasSubstr("found files of both"));
}

TEST_F(CifarTest, ReadsBothLabelsOfCifar100) {
  file("train.bin", record({19, 99}) + record({4, 0}, 7));
  const auto fine = config_.open_train({});
  EXPECT_EQ(fine->classes(), 100);
  EXPECT_EQ(fine->label(0), 99);
  std::vector<uint8_t> pixels(3072);
  EXPECT_EQ(fine->read(1, nullptr, pixels), 0);
  EXPECT_EQ(pixels[0], 7);
  EXPECT_EQ(pixels[1], 57);
  config_.labels = CifarLabels::kCoarse;
  const auto coarse = config_.open_train({});
  EXPECT_EQ(coarse->classes(), 20);
  EXPECT_EQ(coarse->label(0), 19);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(config_.open_eval(), nullptr);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("test.bin is missing"));
}

TEST_F(CifarTest, AugmentsForTrainingOnly) {
  file("train.bin", record({19, 99}));
  const auto dataset = config_.open_train({.flip = true, .crop = Crop::kPad});
  std::vector<uint8_t> plain(3072), changed(3072);
  RandomStream random(1, 2, 3);
  dataset->read(0, nullptr, plain);
  dataset->read(0, &random, changed);
  EXPECT_NE(plain, changed);
}

TEST_F(CifarTest, SaysWhatIsWrongWithAFolder) {
  EXPECT_THAT(train_error(), StartsWith(": expected data_batch_1.bin (CIFAR-10) or train.bin"));
  make_folder(folder_.path() / "cifar-100-binary");
  EXPECT_EQ(train_error(),
            ": expected CIFAR's files, found the folder cifar-100-binary: set data.path to it");
  std::filesystem::remove(folder_.path() / "cifar-100-binary");
  file("data_batch_1", "pickle");
  EXPECT_THAT(train_error(), HasSubstr("Python version of CIFAR"));
  EXPECT_THAT(train_error(), HasSubstr("cifar-10-binary.tar.gz"));
  file("data_batch_1.bin", record({1}));
  EXPECT_EQ(train_error(), "no error");
  config_.labels = CifarLabels::kCoarse;
  EXPECT_THAT(message([&] { config_.open_train({}); }, Exit::kRecipe),
              HasSubstr("is CIFAR-10, which has no such labels"));
  file("train.bin", record({1, 1}));
  EXPECT_EQ(train_error(), ": expected CIFAR-10 or CIFAR-100, found files of both");
}

TEST_F(CifarTest, SaysWhatIsWrongWithAFile) {
  const std::string size = "/data_batch_1.bin: expected CIFAR-10 records of 3073 bytes, found ";
  file("data_batch_1.bin", "");
  EXPECT_EQ(train_error(), size + "0 bytes: 0 records and 0 bytes");
  file("data_batch_1.bin", record({1}) + "x");
  EXPECT_EQ(train_error(), size + "3074 bytes: 1 records and 1 bytes");
  file("data_batch_1.bin", record({1}) + record({10}));
  EXPECT_EQ(train_error(), "/data_batch_1.bin[1]: expected a label from 0 to 9, found 10");
  file("data_batch_1.bin", record({1}));
  file("batches.meta.txt", "a\nb\n");
  EXPECT_EQ(train_error(), "/batches.meta.txt: expected 10 class names, one a line, found 2");
  std::filesystem::remove(folder_.path() / "data_batch_1.bin");
  file("train.bin", record({19, 100}));
  EXPECT_EQ(train_error(), "/train.bin[0]: expected a label from 0 to 99, found 100");
}

TEST_F(CifarTest, AFileThatIsCutShortWhileInUseIsAnError) {
  file("train.bin", record({1, 1}) + record({2, 2}));
  const auto dataset = config_.open_train({});
  std::filesystem::resize_file(folder_.path() / "train.bin", 4000);
  std::vector<uint8_t> pixels(3072);
  EXPECT_EQ(dataset->read(0, nullptr, pixels), 1);
  EXPECT_THAT(message([&] { dataset->read(1, nullptr, pixels); }),
              StartsWith("/train.bin: truncated"));
}

}  // namespace
}  // namespace brim::data
