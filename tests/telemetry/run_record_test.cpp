#include "framework/telemetry/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "framework/base/version.h"
#include "tests/support/temporary_folder.h"

namespace brim::telemetry {
namespace {

using nlohmann::json;

TEST(RunRecord, HoldsWhatMakesARunUnderstandable) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  ::unsetenv("SLURM_JOB_ID");
  const json record = run_record({.command = {"trainer", "--recipe", "x.toml"},
                                  .libraries = {{"libtorch", "2.11.0"}},
                                  .device = "cpu",
                                  .seed = 42});
  EXPECT_EQ(record["versions"]["brim"], brim_version());
  EXPECT_THAT(brim_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_NE(brim_commit(), "");
  EXPECT_EQ(record["versions"]["libtorch"], "2.11.0");
  EXPECT_EQ(record["command"], json({"trainer", "--recipe", "x.toml"}));
  EXPECT_EQ(record["environment"]["OMP_NUM_THREADS"], "7");
  EXPECT_FALSE(record["environment"].contains("SLURM_JOB_ID"));
  EXPECT_EQ(record["seed"], 42);
  EXPECT_EQ(record["device"], "cpu");
  EXPECT_EQ(record["working_folder"], std::filesystem::current_path().string());
  EXPECT_THAT(record["started"].get<std::string>(), ::testing::StartsWith("20"));
}

TEST(RunRecord, TakesAnEntryLater) {
  const brim::testing::TemporaryFolder folder;
  const auto path = folder / "run.json";
  add_to_record(path, "per_rank", 1);
  EXPECT_FALSE(std::filesystem::exists(path));
  brim::testing::put_content(path, R"({"seed": 3, "per_rank": 0})");
  add_to_record(path, "per_rank", {1, 2});
  EXPECT_EQ(json::parse(brim::testing::content(path)), (json{{"seed", 3}, {"per_rank", {1, 2}}}));
  brim::testing::put_content(path, "{damaged");
  add_to_record(path, "per_rank", 1);
  EXPECT_EQ(brim::testing::content(path), "{damaged");
}

TEST(RunRecord, DescribesTheMachine) {
  const json machine = machine_record();
  EXPECT_EQ(machine["cores"], std::thread::hardware_concurrency());
  EXPECT_GT(machine["memory_bytes"], 1 << 28);
  for (const char* key : {"host", "os", "kernel", "cpu"}) {
    EXPECT_THAT(machine[key].get<std::string>(), ::testing::Not(::testing::IsEmpty())) << key;
  }
  EXPECT_THAT(machine["kernel"].get<std::string>(), ::testing::StartsWith("Linux "));
}

}  // namespace
}  // namespace brim::telemetry
