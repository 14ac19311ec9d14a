#include "framework/experiment/bench/bench_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/experiment/bench/bench_summary.h"
#include "framework/experiment/bench/child.h"
#include "tests/support/temporary_folder.h"

namespace brim::experiment {
namespace {

using nlohmann::json;

MeasuredRun run(double samples_per_s) {
  return {.samples_per_s = samples_per_s,
          .step_s = {0.01, 0.02, 0.03},
          .phases_s = {{"forward", 0.015}, {"backward", 0.005}},
          .samples_per_step = 4,
          .first_step_s = 0.5,
          .peak_bytes = 1000,
          .resident_peak_bytes = 2000,
          .warmup_steps = 1,
          .is_steady = true};
}

BenchResult result() {
  BenchResult bench{.started = "now", .seconds = 3, .repeats = 3, .environment = {{"x", 1}}};
  bench.variants.push_back({.name = "batch.micro=8",
                            .recipe = "[run]\n",
                            .job = json::object(),
                            .steps = 3,
                            .warmup = 3,
                            .runs = {run(100), run(120), run(110)}});
  return bench;
}

std::string bench_complaint(const json& file) {
  try {
    parse_bench(file.dump(), "F.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Exit::kData);
    return error.what();
  }
  return "";
}

TEST(BenchFile, WhatIsWrittenIsReadBack) {
  const BenchRecord record = parse_bench(to_json(result()).dump(), "F.json");
  EXPECT_EQ(record.started, "now");
  EXPECT_EQ(record.repeats, 3);
  ASSERT_EQ(record.variants.size(), 1U);
  EXPECT_EQ(record.variants[0].name, "batch.micro=8");
  EXPECT_EQ(record.variants[0].recipe, "[run]\n");
  EXPECT_EQ(record.variants[0].steps, 3);
  EXPECT_EQ(record.variants[0].samples_per_s, (std::vector<double>{100, 120, 110}));
  EXPECT_EQ(record_of(result()).variants[0].samples_per_s, record.variants[0].samples_per_s);
}

TEST(BenchFile, ASummaryHasMediansOfRunsAndQuantilesOfSteps) {
  const Summary summary = summary_of(result().variants[0]);
  EXPECT_EQ(summary.samples_per_s, 110);
  EXPECT_EQ(summary.interval.low, 100);
  EXPECT_NEAR(summary.step_p50_s, 0.02, 1e-12);
  EXPECT_NEAR(summary.step_p95_s, 0.03, 1e-12);
  EXPECT_EQ(summary.phases_s.at("forward"), 0.015);
  const std::string text = report(result());
  EXPECT_NE(text.find("forward 75 %, backward 25 %"), std::string::npos) << text;
  EXPECT_NE(text.find("6 runs or more"), std::string::npos) << text;
  EXPECT_EQ(text.find(" W"), std::string::npos) << text;
}

TEST(BenchFile, EnergyIsToldOfOneGpu) {
  BenchResult bench = result();
  for (MeasuredRun& each : bench.variants[0].runs) each.power_w = 330;
  bench.environment["ranks"] = 1;
  EXPECT_NE(report(bench).find("; 330 W, 3 J a sample"), std::string::npos) << report(bench);
  bench.environment["ranks"] = 2;
  EXPECT_NE(report(bench).find("; 330 W on the first GPU"), std::string::npos) << report(bench);
}

TEST(BenchFile, WhatSlowedAGpuIsSaidOnce) {
  BenchResult bench = result();
  for (MeasuredRun& each : bench.variants[0].runs) {
    each.conditions["gpus"] = {{{"index", 0}, {"throttle", {"the power limit"}}},
                               {{"index", 1}, {"throttle", json::array()}}};
  }
  EXPECT_NE(report(bench).find("clocks were held meanwhile by the power limit\n"),
            std::string::npos)
      << report(bench);
  EXPECT_EQ(report(result()).find("clocks"), std::string::npos);
}

TEST(BenchFile, WhatDisturbedARunIsSaidAtItsWorst) {
  const std::string none = report(result());
  for (const auto& [condition, line] : {
           std::pair{"others_cores", "other processes used up to 1.5 cores meanwhile\n"},
           std::pair{"stolen_cores", "the host took up to 1.5 cores away meanwhile\n"},
           std::pair{"heat_throttles", "the processor was slowed by heat meanwhile\n"},
           std::pair{"quota_throttled_s", "the container's quota held a run up for 1.5 s\n"},
       }) {
    BenchResult bench = result();
    bench.variants[0].runs[1].conditions[condition] = 1.5;
    bench.variants[0].runs[2].conditions[condition] = 0.5;
    EXPECT_NE(report(bench).find(line), std::string::npos) << report(bench);
    EXPECT_EQ(none.find(line), std::string::npos);
  }
}

TEST(BenchFile, WhatIsNoBenchIsRefusedInWords) {
  const json good = to_json(result());
  EXPECT_EQ(bench_complaint(good), "");
  EXPECT_NE(bench_complaint(json::array()).find("expected the file of a bench"), std::string::npos);
  EXPECT_NE(bench_complaint({{"format", "brim bench 9"}}).find("expected the file of a bench"),
            std::string::npos);
  const auto without = [&](const char* place) {
    json file = good;
    const json::json_pointer pointer(place);
    file[pointer.parent_pointer()].erase(pointer.back());
    return bench_complaint(file);
  };
  EXPECT_NE(without("/environment").find("expected \"environment\" in the file"),
            std::string::npos);
  EXPECT_NE(without("/variants/0/recipe").find("expected \"recipe\" in variant 1"),
            std::string::npos);
  const auto with = [&](const char* place, const json& value) {
    json file = good;
    file[json::json_pointer(place)] = value;
    return bench_complaint(file);
  };
  EXPECT_NE(with("/variants", json::array()).find("a list of 1 to 256, found a list of 0"),
            std::string::npos);
  EXPECT_NE(with("/variants/0", 3).find("expected an object, found 3"), std::string::npos);
  EXPECT_NE(with("/variants/0/steps", 0).find("from 1 to 100000, found 0"), std::string::npos);
  EXPECT_NE(with("/repeats", 1e30).find("from 1 to 100"), std::string::npos);
  EXPECT_NE(with("/repeats", 1ULL << 63).find("from 1 to 100"), std::string::npos);
  EXPECT_NE(with("/variants/0/name", "").find("expected 1 to"), std::string::npos);
  EXPECT_NE(with("/variants/0/runs/1/samples_per_s", -3).find("a positive number, found -3"),
            std::string::npos);
  EXPECT_NE(with("/variants/0/runs/1/samples_per_s", json()).find("found null"), std::string::npos);
  EXPECT_NE(with("/variants/1", good["variants"][0]).find("two variants are called"),
            std::string::npos);
}

TEST(MeasuredRun, TheLastStepsOfARunAreMeasured) {
  const testing::TemporaryFolder folder;
  {
    std::ofstream file(folder.path() / "metrics.jsonl");
    for (int step = 1; step <= 30; ++step) {
      const double seconds = step <= 4 ? 1.0 : 0.5;
      file << json({{"step", step},
                    {"step_s", seconds},
                    {"samples_per_s", 8 / seconds},
                    {"process_age_s", 2.0 + step},
                    {"phases_s", {{"forward", seconds}}},
                    {"memory", {{"peak_bytes", 100 * step}}},
                    {"device", step % 10 == 0 ? json{{"power_w", 300 + step}} : json::object()}})
                  .dump()
           << "\n";
    }
    file << R"({"step":30,"eval_loss":1.0})"
         << "\n"
         << R"({"step":31,"step_s")";
  }
  const MeasuredRun run = read_measured_run(folder.path(), 20);
  EXPECT_EQ(run.step_s.size(), 20U);
  EXPECT_NEAR(run.samples_per_s, 16, 1e-9);
  EXPECT_NEAR(run.samples_per_step, 8, 1e-9);
  EXPECT_NEAR(run.phases_s.at("forward"), 0.5, 1e-9);
  EXPECT_NEAR(run.first_step_s, 3, 1e-9);
  EXPECT_EQ(run.peak_bytes, 3000);
  EXPECT_NEAR(run.power_w, 325, 1e-9);  // of steps 20 and 30
  EXPECT_TRUE(run.is_steady);
  EXPECT_EQ(run.warmup_steps, 2);  // three of five steps from there on are fast
  EXPECT_THROW(read_measured_run(folder.path(), 31), Error);
}

TEST(MeasuredRun, LinesOfSeveralStepsCountForAsMany) {
  const testing::TemporaryFolder folder;
  {
    std::ofstream file(folder.path() / "metrics.jsonl");
    for (int step = 10; step <= 60; step += 10) {
      const double seconds = step <= 20 ? 1.0 : 0.5;
      file << json({{"step", step}, {"step_s", seconds}, {"samples_per_s", 8 / seconds}}).dump()
           << "\n";
    }
  }
  const MeasuredRun run = read_measured_run(folder.path(), 35);  // steps 31 to 60
  EXPECT_EQ(run.step_s.size(), 3U);
  EXPECT_NEAR(run.samples_per_s, 16, 1e-9);
  EXPECT_NEAR(run.samples_per_step, 8, 1e-9);
  EXPECT_EQ(run.warmup_steps, 10);  // two of the three medians after them are of fast steps
  EXPECT_THROW(read_measured_run(folder.path(), 9), Error);
}

TEST(Child, ErrorsKeepTheirStatusAndWords) {
  const Error data =
      error_of({.status = 3, .errors = {"error[data]: x: gone", "error[data]: y"}}, "v");
  EXPECT_EQ(data.status(), Exit::kData);
  EXPECT_STREQ(data.what(), "v: x: gone\nv: y");
  EXPECT_EQ(error_of({.status = 128 + 9}, "v").status(), Exit::kResource);
  EXPECT_EQ(error_of({.status = 128 + 11}, "v").status(), Exit::kBug);
  EXPECT_EQ(error_of({.status = 42}, "v").status(), Exit::kBug);
}

}  // namespace
}  // namespace brim::experiment
