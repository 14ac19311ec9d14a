#include "framework/telemetry/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "tests/support/temporary_folder.h"

namespace brim::telemetry {
namespace {

using brim::testing::content;
using brim::testing::put_content;
using brim::testing::TemporaryFolder;
using nlohmann::json;

TEST(MetricsFile, WritesOneObjectALine) {
  const TemporaryFolder folder;
  {
    MetricsFile file(folder / "metrics.jsonl");
    file.append({{"step", 1}, {"loss", 0.5}});
    file.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
    file.append({{"note", "line\nbreak, broken \xff UTF-8"}});
  }
  EXPECT_EQ(content(folder / "metrics.jsonl"),
            "{\"loss\":0.5,\"step\":1}\n{\"loss\":null,\"step\":2}\n"
            "{\"note\":\"line\\nbreak, broken \uFFFD UTF-8\"}\n");
}

TEST(MetricsFile, ExtendsWhatIsThere) {
  const TemporaryFolder folder;
  for (const int step : {1, 2}) MetricsFile(folder / "metrics.jsonl").append({{"step", step}});
  EXPECT_EQ(content(folder / "metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(MetricsFile, FlushBringsEverythingToTheFile) {
  const TemporaryFolder folder;
  MetricsFile file(folder / "metrics.jsonl");
  for (int step = 1; step <= 3; ++step) file.append({{"step", step}});
  file.flush();
  EXPECT_EQ(content(folder / "metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

// /dev/full takes every open and refuses every write, as a full disk does.
TEST(MetricsFile, AFullDiskIsAnErrorThatNamesTheFile) {
  try {
    MetricsFile file("/dev/full");
    file.append({{"step", 1}});
    file.close();
    FAIL() << "the write was lost silently";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kResource);
    EXPECT_THAT(
        error.what(),
        ::testing::HasSubstr("/dev/full: cannot write: No space left on device (free some space"));
  }
}

TEST(MetricsFile, AFolderThatIsMissingIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  try {
    MetricsFile file(folder / "missing/metrics.jsonl");
    FAIL() << "opened a file in a missing folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kResource);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("missing/metrics.jsonl: cannot open"));
  }
}

/// What cut_back_metrics() leaves of these bytes.
std::string after_cut(const std::string& bytes, int64_t step) {
  const TemporaryFolder folder;
  put_content(folder / "metrics.jsonl", bytes);
  cut_back_metrics(folder / "metrics.jsonl", step);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "a temporary file was left";
  return content(folder / "metrics.jsonl");
}

TEST(CutBackMetrics, DropsLaterStepsAndKeepsTheRestAsItWas) {
  const std::string head = "{\"kind\": \"start\"}\n{\"step\":  1, \"loss\": 1e0}\n{\"step\":2}\n";
  EXPECT_EQ(after_cut(head + "{\"step\":3}\n{\"eval\":1,\"step\":2}\n{\"step\":4}\n", 2),
            head + "{\"eval\":1,\"step\":2}\n");
  EXPECT_EQ(after_cut("{\"step\":0}\n{\"step\":1}\n", 0), "{\"step\":0}\n");
  EXPECT_EQ(after_cut("{\"step\":2.5}\n{\"step\":18446744073709551615}\n{\"step\":\"x\"}\n", 2),
            "{\"step\":\"x\"}\n");
}

TEST(CutBackMetrics, SaysHowFarTheStepsWent) {
  const TemporaryFolder folder;
  const auto last = [&](const std::string& bytes, int64_t step) {
    put_content(folder / "metrics.jsonl", bytes);
    return cut_back_metrics(folder / "metrics.jsonl", step);
  };
  EXPECT_EQ(last("{\"step\":1}\n{\"step\":7}\n{\"step\":5}\n", 2), 7);
  EXPECT_EQ(last("{\"step\":1}\n", 2), 2);
  EXPECT_EQ(last("", 2), 2);
  EXPECT_EQ(last("{\"step\":18446744073709551615}\n{\"step\":9.5}\n{\"step\":\"x\"}\n", 2), 2);
  EXPECT_EQ(last("{\"step\":3}\n{\"step\":4}", 2), 4);
}

TEST(CutBackMetrics, DropsALastLineTornAnywhere) {
  const std::string head = "{\"step\":1}\n";
  const std::string last = "{\"step\":2}\n";
  for (size_t cut = 0; cut < last.size(); ++cut) {
    EXPECT_EQ(after_cut(head + last.substr(0, cut), 9), head) << "cut at " << cut;
  }
  EXPECT_EQ(after_cut(head + last, 9), head + last);
}

TEST(CutBackMetrics, DropsDamagedLines) {
  EXPECT_EQ(after_cut("{\"step\":1}\nnonsense\n[1]\n\n{\"step\":2}\n", 9),
            "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(after_cut(std::string(1000, '\0') + "\n{\"step\":2}\n", 9), "{\"step\":2}\n");
  EXPECT_EQ(after_cut(std::string(100'000, '[') + "\n{\"step\":2}\n", 9), "{\"step\":2}\n");
  EXPECT_EQ(after_cut("{\"x\":\"" + std::string(5'000'000, 'x') + "\"}\n{\"step\":2}\n", 9),
            "{\"step\":2}\n");
}

TEST(CutBackMetrics, KeepsLinesThatLieAcrossBlocks) {
  std::string bytes;
  for (int step = 1; step <= 30'000; ++step) {
    bytes += "{\"loss\":0.123456789,\"step\":" + std::to_string(step) + "}\n";
  }
  const size_t half = bytes.find("{\"loss\":0.123456789,\"step\":15001}");
  EXPECT_EQ(after_cut(bytes, 15'000), bytes.substr(0, half));
}

TEST(CutBackMetrics, LeavesAFileAloneThatNeedsNoCut) {
  const TemporaryFolder folder;
  put_content(folder / "metrics.jsonl", "{\"step\":1}\n");
  std::filesystem::permissions(folder / "metrics.jsonl", std::filesystem::perms::owner_read);
  cut_back_metrics(folder / "metrics.jsonl", 1);
  EXPECT_EQ(std::filesystem::status(folder / "metrics.jsonl").permissions(),
            std::filesystem::perms::owner_read);
}

TEST(CutBackMetrics, AMissingFileIsFine) {
  const TemporaryFolder folder;
  cut_back_metrics(folder / "metrics.jsonl", 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "metrics.jsonl"));
}

}  // namespace
}  // namespace brim::telemetry
