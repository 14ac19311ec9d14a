#include "framework/train/run/run_folder.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace brim::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunFolders : public ::testing::Test {
 protected:
  RunFolder resume(const nlohmann::json& record) {
    return create_run_folder(
        choose_run_folder({.run_name = "a", .output = folder_ / "run", .resume = "auto"}), "x = 1",
        record);
  }
  nlohmann::json recorded() {
    return nlohmann::json::parse(brim::testing::content(folder_ / "run" / "run.json"));
  }

  brim::testing::TemporaryFolder folder_;
};

TEST_F(RunFolders, AFreshRunTakesTheOutputFolder) {
  const RunFolder run =
      choose_run_folder({.run_name = "a", .output = folder_ / "run", .resume = ""});
  EXPECT_EQ(run.path, folder_ / "run");
  EXPECT_FALSE(run.checkpoint.has_value());
  EXPECT_FALSE(std::filesystem::exists(run.path)) << "choosing touches nothing";
}

TEST_F(RunFolders, AFolderThatHoldsARunIsRefused) {
  create_run_folder({folder_ / "run", {}}, "x = 1\n", nlohmann::json::object());
  try {
    choose_run_folder({.run_name = "a", .output = folder_ / "run", .resume = ""});
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kRecipe);
    EXPECT_THAT(error.what(), HasSubstr("--resume auto"));
  }
}

TEST_F(RunFolders, AFileOrAFolderOfRunsIsRefused) {
  create_run_folder({folder_ / "runs" / "a", {}}, "x = 1\n", nlohmann::json::object());
  brim::testing::put_content(folder_ / "file", "");
  const auto refusal = [&](const std::string& output, const std::string& resume) {
    return error_of(Exit::kRecipe, [&] {
      choose_run_folder({.run_name = "a", .output = folder_ / output, .resume = resume});
    });
  };
  for (const std::string resume : {"", "auto"}) {
    EXPECT_THAT(refusal("file", resume), HasSubstr("expected a folder, found a file"));
    EXPECT_THAT(refusal("runs", resume), HasSubstr("did you mean --output"));
    EXPECT_THAT(refusal("runs", resume), HasSubstr("/runs/a-2?"));
  }
  std::filesystem::create_directories(folder_ / "empty" / "inner");
  EXPECT_EQ(choose_run_folder({.run_name = "a", .output = folder_ / "empty", .resume = ""}).path,
            folder_ / "empty");
}

TEST_F(RunFolders, ResumeAutoWithoutACheckpointIsAFreshStart) {
  const RunFolder run =
      choose_run_folder({.run_name = "a", .output = folder_ / "run", .resume = "auto"});
  EXPECT_FALSE(run.checkpoint.has_value());
}

TEST_F(RunFolders, TheRecordKeepsWhatEarlierPartsSaid) {
  for (int part = 1; part <= 3; ++part) resume({{"part", part}});
  const auto record = recorded();
  EXPECT_EQ(record.at("part"), 3);
  ASSERT_THAT(record.at("earlier"), SizeIs(2));
  EXPECT_EQ(record.at("earlier").at(0).at("part"), 1);
  EXPECT_FALSE(record.at("earlier").at(1).contains("earlier"));
}

TEST_F(RunFolders, ADamagedRecordDoesNotStopTheRun) {
  resume({{"part", 1}});
  brim::testing::put_content(folder_ / "run" / "run.json", "{ torn");
  resume({{"part", 2}});
  EXPECT_THAT(recorded().at("earlier"), IsEmpty());
}

TEST_F(RunFolders, TheRecordKeepsTheFirstPartAndTheNewest) {
  for (int part = 1; part <= 40; ++part) resume({{"part", part}});
  const auto record = recorded();
  const auto& earlier = record.at("earlier");
  EXPECT_EQ(earlier.at(0).at("part"), 1);
  EXPECT_EQ(earlier.back().at("part"), 39);
  EXPECT_LE(earlier.size(), 20U);
  EXPECT_EQ(static_cast<int>(earlier.size()) + record.at("earlier_dropped").get<int>(), 39);
}

TEST_F(RunFolders, ARecordTooLargeToReadDoesNotStopTheRun) {
  resume({{"part", 1}});
  std::filesystem::resize_file(folder_ / "run" / "run.json", (16 << 20) + 1);
  resume({{"part", 2}});
  EXPECT_EQ(recorded().at("part"), 2);
}

TEST_F(RunFolders, OneProcessTrainsInAFolder) {
  const RunFolder run = resume({{"part", 1}});
  EXPECT_THAT(error_of(Exit::kResource,
                       [&] {
                         resume({{"part", 2}});
                       }),
              HasSubstr("another process trains in this folder"));
  EXPECT_EQ(recorded().at("part"), 1);
  const RunFolderOptions dry = {
      .run_name = "a", .output = folder_ / "run", .resume = "auto", .is_dry_run = true};
  EXPECT_EQ(choose_run_folder(dry).lock, nullptr);
}

TEST_F(RunFolders, TwoThatChooseTheSameNewFolderDoNotMix) {
  const RunFolderOptions options = {.run_name = "a", .output = folder_ / "run", .resume = "auto"};
  const RunFolder early = choose_run_folder(options), late = choose_run_folder(options);
  create_run_folder(early, "", {{"part", 1}});
  EXPECT_THAT(error_of(Exit::kRecipe,
                       [&] {
                         create_run_folder(late, "", {{"part", 2}});
                       }),
              HasSubstr("another run has begun here"));
  EXPECT_EQ(recorded().at("part"), 1);
}

}  // namespace
}  // namespace brim::train
