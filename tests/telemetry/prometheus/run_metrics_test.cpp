#include "framework/telemetry/prometheus/run_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace brim::telemetry {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunMetrics, AreNamedAsPrometheusNamesThem) {
  RunMetrics metrics(Labels{{"run", "x"}});
  metrics.take({{"step", 20},
                {"step_s", 0.5},
                {"samples_per_s", 64},
                {"phases_s", {{"forward", 0.25}, {"data_wait", 0.125}}},
                {"memory", {{"peak_bytes", 1 << 30}}},
                {"note", "text"},
                {"list", {1, 2}}},
               0);
  EXPECT_EQ(metrics.text(),
            "# HELP brim_run_info The run that these metrics are of.\n"
            "# TYPE brim_run_info gauge\n"
            "brim_run_info{run=\"x\"} 1\n"
            "# TYPE brim_memory_peak_bytes gauge\n"
            "brim_memory_peak_bytes 1073741824\n"
            "# TYPE brim_phase_seconds gauge\n"
            "brim_phase_seconds{phase=\"data_wait\"} 0.125\n"
            "brim_phase_seconds{phase=\"forward\"} 0.25\n"
            "# TYPE brim_samples_per_second gauge\n"
            "brim_samples_per_second 64\n"
            "# TYPE brim_step gauge\n"
            "brim_step 20\n"
            "# TYPE brim_step_seconds gauge\n"
            "brim_step_seconds 0.5\n");
}

TEST(RunMetrics, ThatAreNotFiniteHaveTheirWords) {
  RunMetrics metrics(Labels{});
  metrics.take({{"loss", NAN}, {"scale", INFINITY}, {"gradient_norm", -INFINITY}}, 0);
  EXPECT_THAT(metrics.text(), HasSubstr("brim_loss NaN\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("brim_scale +Inf\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("brim_gradient_norm -Inf\n"));
}

TEST(RunMetrics, AreForgottenWhenNobodyTellsThemButEvaluationsAreNot) {
  RunMetrics metrics(Labels{});
  metrics.take({{"step", 1}, {"device", {{"busy_percent", 90}}}, {"eval_top1", 70}}, 0);
  metrics.take({{"step", 2}}, 60);
  EXPECT_THAT(metrics.text(), HasSubstr("brim_device_busy_percent 90\n"));
  metrics.take({{"step", 3}}, 61);
  EXPECT_THAT(metrics.text(), Not(HasSubstr("busy_percent")));
  EXPECT_THAT(metrics.text(), HasSubstr("brim_step 3\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("brim_eval_top1 70\n"));
}

}  // namespace
}  // namespace brim::telemetry
