#include "framework/telemetry/process_metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/base/units.h"
#include "tests/support/temporary_folder.h"

namespace brim::telemetry {
namespace {

using nlohmann::json;
using testing::put_content;
using testing::TemporaryFolder;

void put_stat(const TemporaryFolder& root, int faults) {
  put_content(root / "proc/self/stat",
              "7 (a (b) c) S 1 7 7 0 -1 4194304 100 0 " + std::to_string(faults) + " 0 5 5\n");
}

TEST(ProcessMetrics, AreThoseOfProc) {
  const TemporaryFolder root;
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "proc/pressure");
  put_content(root / "proc/self/status", "Name:\tx\nVmRSS:\t  2048 kB\nVmSwap:\t   3 kB\n");
  put_content(root / "proc/loadavg", "3.50 1.00 0.50 4/500 1234\n");
  put_content(root / "proc/pressure/io",
              "some avg10=12.34 avg60=1 avg300=0 total=5\nfull avg10=1\n");
  put_stat(root, 10);
  ProcessMetrics metrics(root.path());
  const double start_s = now_s();
  json line;
  metrics.add_to(line, start_s + 0.5);
  EXPECT_TRUE(line.is_null());
  put_stat(root, 30);
  metrics.add_to(line, start_s + 4);
  EXPECT_EQ(line["process"]["resident_bytes"], 2048 * 1024);
  EXPECT_EQ(line["process"]["swapped_bytes"], 3 * 1024);
  EXPECT_NEAR(line["process"]["major_faults_per_s"].get<double>(), 5, 0.1);
  EXPECT_EQ(line["machine"]["load"], 3.5);
  EXPECT_EQ(line["machine"]["io_stalled_percent"], 12.34);
}

TEST(ProcessMetrics, WhatIsNotKnownIsLeftOut) {
  const TemporaryFolder root;
  ProcessMetrics metrics(root.path());
  json line = {{"step", 1}};
  metrics.add_to(line, now_s() + 10);
  EXPECT_EQ(line, (json{{"step", 1}}));
}

TEST(ProcessMetrics, ThisProcessHasThem) {
  ProcessMetrics metrics;
  json line;
  metrics.add_to(line, now_s() + 10);
  EXPECT_GT(line["process"]["resident_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_GE(line["machine"]["load"].get<double>(), 0);
}

}  // namespace
}  // namespace brim::telemetry
