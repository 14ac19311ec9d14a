#include "framework/train/run_folder.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "tests/support/temporary_folder.h"

namespace brim::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunFolders : public ::testing::Test {
 protected:
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

TEST_F(RunFolders, ResumeAutoWithoutACheckpointIsAFreshStart) {
  const RunFolder run =
      choose_run_folder({.run_name = "a", .output = folder_ / "run", .resume = "auto"});
  EXPECT_FALSE(run.checkpoint.has_value());
}

TEST_F(RunFolders, TheRecordKeepsWhatEarlierPartsSaid) {
  const RunFolder run{folder_ / "run", {}};
  for (int part = 1; part <= 3; ++part) create_run_folder(run, "", {{"part", part}});
  const auto record = nlohmann::json::parse(brim::testing::content(run.record()));
  EXPECT_EQ(record.at("part"), 3);
  ASSERT_THAT(record.at("earlier"), SizeIs(2));
  EXPECT_EQ(record.at("earlier").at(0).at("part"), 1);
  EXPECT_FALSE(record.at("earlier").at(1).contains("earlier"));
}

TEST_F(RunFolders, ADamagedRecordDoesNotStopTheRun) {
  const RunFolder run{folder_ / "run", {}};
  create_run_folder(run, "", {{"part", 1}});
  brim::testing::put_content(run.record(), "{ torn");
  create_run_folder(run, "", {{"part", 2}});
  const auto record = nlohmann::json::parse(brim::testing::content(run.record()));
  EXPECT_THAT(record.at("earlier"), IsEmpty());
}

}  // namespace
}  // namespace brim::train
